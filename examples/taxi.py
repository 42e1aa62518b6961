"""Fairness between destinations when driving time is short (Gymnasium's Taxi).

An episode is one order: a passenger waits at one of four places and wants to another. Driving time is budgeted:
1.5 discounted moves per order, where serving all orders takes 8.3. So most orders are turned down, and the
question is which. Reward alone turns down the long ones, and with them the place furthest from the others.
Proportional fairness maximises the sum of the logarithms of what the four destinations get.

    python examples/taxi.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cvxmdp as cm
import showing

NAME, DISCOUNT, TIME_LIMIT = "Taxi-v4", 0.95, 200
PLACES = ("R", "G", "Y", "B")
DELIVERIES = [f"to {place}" for place in PLACES]
BUDGET = 1.5
NEARLY = 1e-6  # of reward, within which a policy counts as one of the best


def delivered(destination: int) -> showing.Outcome:
    """One where the episode ends, which is where its passenger arrives; a state is 4 k + destination."""
    return lambda state, action, after, reward, end: float(end and state % 4 == destination)


SIGNALS: dict[str, showing.Outcome] = {
    **{name: delivered(number) for number, name in enumerate(DELIVERIES)},
    # a move, unless a wall is in the way; standing at a wall is how this taxi waits (a state is 20 cell + rest)
    "driving": lambda state, action, after, reward, end: float(state // 20 != after // 20),
}


def model() -> cm.TabularMDP:
    """Gymnasium's table without the actions that it fines: there is nobody to pick up or to drop off."""
    mdp = cm.from_gymnasium_table(NAME, DISCOUNT, signals=SIGNALS)
    return mdp.replace(actions=mdp.signal("reward") > -10)


def problems(mdp: cm.TabularMDP) -> dict[str, cm.Problem]:
    """Three ideas of what is good, under one budget, and the best without it."""
    budget = {"driving": cm.linear("driving") <= BUDGET}
    reward, worst = cm.linear("reward"), cm.minimum(*map(cm.linear, DELIVERIES))
    return {
        "no budget": cm.Problem(mdp, maximize=reward),
        "reward": cm.Problem(mdp, maximize=reward, subject_to=budget),
        "proportional": cm.Problem(mdp, maximize=cm.log_sum(*DELIVERIES), subject_to=budget),
        "worst first": cm.Problem(mdp, maximize=worst, subject_to=budget),
    }


def kindest(best: cm.Problem, reward: float) -> cm.Problem:
    """The most that the worst served destination can get from a policy with the best reward.

    Many policies have it, and a solver returns just one of them: what that one gives to whom proves nothing.
    """
    kept = {"reward": cm.linear("reward") >= reward - NEARLY}
    worst = cm.minimum(*map(cm.linear, DELIVERIES))
    return cm.Problem(best.mdp, maximize=worst, subject_to={**best.constraints, **kept})


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        certificates: by idea.
        deliveries: by idea, discounted deliveries per episode to each place.
        kindest: what the worst served destination can get at most where reward is what counts.
        trials: the proportional policy in the real environment, per seed.
    """

    certificates: Mapping[str, cm.Certificate]
    deliveries: Mapping[str, list[float]]
    kindest: cm.Certificate
    trials: list[showing.Trial]


def main(short: bool = False, picture: Path | None = None) -> Found:
    """Solve, prove, compare and play."""
    episodes, seeds = (100, 1) if short else (2_000, showing.SEEDS)
    mdp = model()
    asked = problems(mdp)
    proofs = {name: cm.certify(problem, cm.solve(problem)) for name, problem in asked.items()}
    gets = {
        name: [showing.total(mdp, proof.policy, signal) for signal in DELIVERIES]
        for name, proof in proofs.items()
    }
    kind = kindest(asked["reward"], proofs["reward"].lower)
    most = cm.certify(kind, cm.solve(kind))
    show(mdp, proofs, gets)
    print(
        f"\nProven: no policy with the best reward (within {NEARLY:g}) gives its worst served destination "
        f"more than {most.upper:.4f}."
    )
    showing.heading("Proportional fairness: proven")
    print(proofs["proportional"])
    fair, policy = asked["proportional"], proofs["proportional"].policy
    with showing.real(NAME, DISCOUNT, SIGNALS) as env:
        trials = [
            showing.play(
                fair,
                policy,
                env,
                episodes,
                seed,
                bounds=dict.fromkeys(SIGNALS, (0, 1)),
                return_bounds=dict.fromkeys(DELIVERIES, (0, 1)),  # an episode delivers once
                horizon=TIME_LIMIT,
                episode_limit=TIME_LIMIT,
            )
            for seed in range(seeds)
        ]
    showing.show_trials(trials, NAME)
    draw(gets, picture)
    return Found(proofs, gets, most, trials)


def show(
    mdp: cm.TabularMDP, proofs: Mapping[str, cm.Certificate], gets: Mapping[str, list[float]]
) -> None:
    """What each destination gets, and what it takes."""
    showing.heading("Discounted sums per episode, exact")

    def row(name: str) -> list[str]:
        sums = [showing.total(mdp, proofs[name].policy, signal) for signal in ("driving", "reward")]
        numbers = [*gets[name], sum(gets[name]), max(gets[name]) / min(gets[name]), *sums]
        return [name, *(f"{number:.4f}" for number in numbers), f"{proofs[name].relative_gap:.0e}"]

    header = ("maximise", *DELIVERIES, "all", "most/least", "driving", "reward", "proven gap")
    showing.table(header, map(row, proofs))


def draw(gets: Mapping[str, list[float]], picture: Path | None) -> None:
    """Bars per destination, one group for each idea."""
    figure, (axes,) = showing.figure_of(1, 1, width=7.0, height=3.6)
    ideas = [name for name in gets if name != "no budget"]
    for number, (name, colour) in enumerate(
        zip(ideas, (showing.GREY, showing.TEAL, showing.DARK), strict=True)
    ):
        places = [place + 0.27 * (number - 1) for place in range(len(PLACES))]
        axes.bar(places, gets[name], width=0.25, color=colour, label=name)
    axes.set_xticks(range(len(PLACES)), DELIVERIES)
    axes.set_ylabel("discounted deliveries per episode")
    axes.set_title(
        f"who is served when driving is limited to {BUDGET:g} discounted moves", fontsize=10
    )
    axes.set_ylim(0, 1.2 * max(max(gets[name]) for name in ideas))
    axes.legend(loc="upper center", ncols=3)
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "taxi")
