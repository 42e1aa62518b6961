"""A stock for two kinds of customers: service levels, fairness, and what a little more money buys.

Every day a clinic and the shops ask for units of one good. The clinic asks seldom and then for much, and pays
2 a unit; the shops ask for a few every day and pay 3. What is not on the shelf is lost. In the evening the
store orders for the next morning. Ordering and storing may cost 4 a day on average (discounted), the clinic is
promised 70% of what it asks for and the shops 80%.

    python examples/inventory.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cvxmdp as cm
import showing

DISCOUNT, SHELF, FIRST_STOCK = 0.95, 12, 6
CLINIC = {0: 0.5, 1: 0.3, 4: 0.2}  # units asked for in a day, with their probabilities
SHOPS = {1: 0.2, 2: 0.4, 3: 0.3, 4: 0.1}
PRICE = {"clinic": 2.0, "shops": 3.0}
TRUCK, UNIT, STORING = 2.0, 1.0, 0.3  # for an order, for a unit in it, for a unit overnight
COST, PROMISED = 4.0, {"clinic": 0.7, "shops": 0.8}


def mean(demand: Mapping[int, float]) -> float:
    """Units asked for per day."""
    return sum(units * chance for units, chance in demand.items())


def decisions(stock: int) -> list[tuple[str, int]]:
    """Who is served first today, and how many units come tomorrow, two to a box."""
    return [(who, order) for who in PRICE for order in range(0, SHELF - stock + 1, 2)]


def day(stock: int, decision: tuple[str, int]) -> list[tuple[float, int, dict[str, float]]]:
    """What can happen: (probability, stock tomorrow, signals). Service is in shares of the mean demand."""
    first, order = decision
    outcomes = []
    for clinic, chance in CLINIC.items():
        for shops, other_chance in SHOPS.items():
            asked = {"clinic": clinic, "shops": shops}
            served = {first: min(asked[first], stock)}
            for other in asked.keys() - served.keys():
                served[other] = min(asked[other], stock - served[first])
            left = stock - sum(served.values())
            signals = {
                "clinic": served["clinic"] / mean(CLINIC),
                "shops": served["shops"] / mean(SHOPS),
                "revenue": sum(PRICE[who] * units for who, units in served.items()),
                "cost": STORING * left + (TRUCK + UNIT * order if order else 0.0),
            }
            outcomes.append((chance * other_chance, left + order, signals))
    return outcomes


def model() -> cm.TabularMDP:
    """What ``from_function`` explores: states are numbers of units on the shelf in the morning."""
    return cm.from_function(day, initial=FIRST_STOCK, actions=decisions, discount=DISCOUNT)


def problems(mdp: cm.TabularMDP) -> dict[str, cm.Problem]:
    """Revenue, revenue with the promises, and fairness with the promises, all at the same cost."""
    cost = {"cost": cm.linear("cost", per="step") <= COST}
    service = {who: cm.linear(who, per="step") for who in PROMISED}
    kept = cost | {who: service[who] >= least for who, least in PROMISED.items()}
    revenue = cm.linear("revenue", per="step")
    return {
        "revenue": cm.Problem(mdp, maximize=revenue, subject_to=cost),
        "revenue, promises": cm.Problem(mdp, maximize=revenue, subject_to=kept),
        "fairness, promises": cm.Problem(
            mdp, maximize=cm.log_sum(*service.values()), subject_to=kept
        ),
    }


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        certificates: by idea.
        service: by idea, the share of its demand that each kind of customer gets.
        frontier: fairness with the promises, against the cost.
        trials: the fair policy simulated, per seed.
    """

    certificates: Mapping[str, cm.Certificate]
    service: Mapping[str, Mapping[str, float]]
    frontier: cm.Frontier
    trials: list[showing.Trial]


def per_day(mdp: cm.TabularMDP, policy: cm.Policy, signal: str) -> float:
    """The discounted average of a signal per day."""
    return (1 - DISCOUNT) * showing.total(mdp, policy, signal)


def main(short: bool = False, picture: Path | None = None) -> Found:
    """Solve, prove, trace the frontier and simulate."""
    episodes, seeds, budgets = (500, 2, 5) if short else (20_000, showing.SEEDS, 9)
    mdp = model()
    asked = problems(mdp)
    proofs = {name: cm.certify(problem, cm.solve(problem)) for name, problem in asked.items()}
    show(mdp, proofs)
    fair = asked["fairness, promises"]
    policy = proofs["fairness, promises"].policy
    showing.heading("Fairness with the promises: proven")
    print(proofs["fairness, promises"])
    showing.heading("What money buys")
    frontier = cm.frontier(fair, "cost", n=budgets)
    print(frontier)
    trials = [showing.play(fair, policy, mdp, episodes, seed) for seed in range(seeds)]
    showing.show_trials(trials, "the simulated store")
    service = {
        name: {who: per_day(mdp, proof.policy, who) for who in PROMISED}
        for name, proof in proofs.items()
    }
    draw(service, frontier, picture)
    return Found(proofs, service, frontier, trials)


def show(mdp: cm.TabularMDP, proofs: Mapping[str, cm.Certificate]) -> None:
    """Who gets what, and what it earns and costs."""
    showing.heading("Discounted averages per day, exact")
    signals = ("clinic", "shops", "revenue", "cost")
    rows = (
        (
            name,
            *(f"{per_day(mdp, proof.policy, signal):.4f}" for signal in signals),
            f"{proof.relative_gap:.0e}",
        )
        for name, proof in proofs.items()
    )
    showing.table(("maximise", *signals, "proven gap"), rows)


def draw(
    service: Mapping[str, Mapping[str, float]], frontier: cm.Frontier, picture: Path | None
) -> None:
    """Service of both kinds of customers under each idea, and the frontier."""
    figure, (bars, curve) = showing.figure_of(1, 2, width=5.5, height=4.0)
    colours = (showing.GREY, showing.DARK, showing.TEAL)
    for number, ((name, gets), colour) in enumerate(zip(service.items(), colours, strict=True)):
        places = np.arange(len(gets)) + 0.27 * (number - 1)
        bars.bar(places, list(gets.values()), width=0.25, color=colour, label=name)
    for place, least in enumerate(PROMISED.values()):
        promised = "promised" if place == 0 else None
        bars.hlines(least, place - 0.45, place + 0.45, color=showing.RED, label=promised)
    bars.set_xticks(range(len(PROMISED)), list(PROMISED))
    bars.set(
        ylabel="share of the demand that is served", ylim=(0, 1.25), yticks=np.arange(0, 1.1, 0.2)
    )
    bars.legend(loc="upper center", ncols=2, fontsize=9)
    costs = np.linspace(frontier.points[0].budget, frontier.points[-1].budget, 200)
    curve.fill_between(
        costs,
        *np.array([frontier.envelope(float(cost)) for cost in costs]).T,
        color=showing.TEAL,
        alpha=0.4,
        label="proven: lies in here",
    )
    solved = [(point.budget, point.certificate.lower) for point in frontier.points]
    curve.plot(*np.array(solved).T, "o", color=showing.DARK, label="solved")
    curve.axvline(frontier.infeasible_until, color=showing.RED, label="promises cannot be kept")
    curve.axvline(frontier.free_from, color=showing.GREY, linestyle=":", label="money is no object")
    curve.set(xlabel="cost allowed per day", ylabel="fairness: sum of logarithms of service")
    curve.legend(loc="lower right", fontsize=9)
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "inventory")
