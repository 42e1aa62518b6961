"""A plan from a log, and what it does in reality: 50,000 rides of a courier firm.

Twelve places, twelve ways on from each. The firm's couriers mostly take the usual way; the log has some fifty
rides on each of the others, which pay more. A ride may end in a crash, a theft or a delay, each with a
probability of a few percent, of which the log shows a share of few rides. At most 0.22 of each is wanted
(discounted).

The best plan of the estimate likes ways on which, in fifty rides, nothing happened to happen. The cautious plan
keeps the budgets in every model that the log allows with confidence 0.95. Tighter budgets it cannot promise,
and says which ways would have to be tried, and how often.

    python examples/courier_log.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import cvxmdp as cm

PLACES, WAYS, DISCOUNT = 12, 12, 0.9
RIDES, DAY, USUAL = 50_000, 50, 0.8  # in all, in a day, and the share of rides on the usual way
KINDS = ("crash", "theft", "delay")
BUDGET, TIGHT = 0.22, 0.1


def town() -> cm.TabularMDP:
    """The truth, which the firm does not know."""
    random = np.random.default_rng(0)
    transition = np.zeros((PLACES, WAYS, PLACES))
    for place in range(PLACES):
        for way in range(WAYS):
            transition[place, way, random.choice(PLACES, 2, replace=False)] = (0.8, 0.2)
    earned = random.uniform(0.2, 1.0, (PLACES, WAYS))
    earned[:, 0] = random.uniform(0.4, 0.7, PLACES)
    risks = {}
    for kind in KINDS:
        usual = random.uniform(0.002, 0.01, (PLACES, 1))
        risks[kind] = np.hstack([usual, random.exponential(0.03, (PLACES, WAYS - 1))])
    start = np.full(PLACES, 1 / PLACES)
    return cm.TabularMDP(transition, start, DISCOUNT, signals={"earned": earned, **risks})


def logbook(truth: cm.TabularMDP) -> dict[str, np.ndarray]:
    """What was written down: one row per ride."""
    random = np.random.default_rng(0)
    chances = np.cumsum(truth.dense_transition(), axis=2)
    names = ("episode", "state", "action", "next_state", "terminated", "earned", *KINDS)
    rows: list[tuple[float, ...]] = []
    place = 0
    for ride in range(RIDES):
        if ride % DAY == 0:
            place = int(random.integers(PLACES))
        way = 0 if random.random() < USUAL else int(random.integers(1, WAYS))
        after = int(np.searchsorted(chances[place, way], random.random()))
        told = [float(random.random() < truth.signal(kind)[place, way]) for kind in KINDS]
        pay = truth.signal("earned")[place, way]
        rows.append((ride // DAY, place, way, after, False, pay, *told))
        place = after
    return dict(zip(names, np.array(rows).T, strict=True))


def asked(mdp: cm.TabularMDP, budget: float) -> cm.Problem:
    """Earn as much as possible, with so much of each misfortune."""
    budgets = {kind: cm.linear(kind) <= budget for kind in KINDS}
    return cm.Problem(mdp, maximize=cm.linear("earned"), subject_to=budgets)


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        estimate: the model of the log.
        plain, cautious, tight: the estimate's own plan, the cautious one, and the answer for tighter budgets.
        plain_spent, cautious_spent: what they spend in reality, by misfortune.
    """

    estimate: cm.TabularMDP
    plain: cm.Solution
    cautious: cm.Solution
    tight: cm.Solution
    plain_spent: dict[str, float]
    cautious_spent: dict[str, float]


def main() -> Found:
    """Plan twice from one log, and look at both plans in reality."""
    truth = town()
    bounds = dict.fromkeys(KINDS, (0.0, 1.0))
    estimate = cm.from_transitions(logbook(truth), DISCOUNT, known=["earned"], bounds=bounds)
    print(estimate, "\n")
    problem, reality = asked(estimate, BUDGET), asked(truth, BUDGET)
    plain, cautious = cm.solve(problem), cm.solve(problem, cautious=0.95)
    spent = []
    for name, answer in (("plain", plain), ("cautious", cautious)):
        real = reality.evaluate(answer.policy)
        spent.append({kind: BUDGET - slack for kind, slack in real.slack.items()})
        told = ", ".join(f"{kind} {much:.2f}" for kind, much in spent[-1].items())
        earns = f"earns {answer.objective:.2f} in the estimate, {real.objective:.2f} in reality"
        print(f"{name} plan: {earns};\n  in reality {told} (budget {BUDGET})\n")
    print(cautious.message, "\n")
    tight = cm.solve(asked(estimate, TIGHT), cautious=0.95)
    print(f"With budgets of {TIGHT}: {tight.message}")
    return Found(estimate, plain, cautious, tight, *spent)


if __name__ == "__main__":
    main()
