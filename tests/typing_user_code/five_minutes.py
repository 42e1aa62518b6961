"""The README's five minutes, with its simulator, as a user writes it."""

from typing import assert_type

import numpy as np

import cvxmdp as cm

mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=[10, 11, 18, 21, 29, 30])
problem = cm.Problem(
    mdp,
    maximize=cm.entropy(),
    subject_to={"hazard": cm.linear("hazard", per="step") <= 0.02},
)

solution = cm.solve(problem)
print(solution)
assert_type(solution, cm.Solution)
assert_type(solution.policy, cm.Policy)
row: np.ndarray = solution.policy.probabilities(3)
solution.policy.save("policy.safetensors")
visits: np.ndarray = solution.occupancy.sum(axis=1)
assert_type(solution.multipliers["hazard"], float)
solution.plot("solution.png")
solution.save("answer")
assert_type(cm.load_solution("answer").objective, float)
assert_type(cm.load_problem("answer"), cm.Problem)

certificate = cm.certify(problem, solution)
assert_type(certificate, cm.Certificate)
assert_type(certificate.gap, float)
certificate.save("certificate.json")
assert cm.check("certificate.json", problem)

frontier = cm.frontier(problem, "hazard", n=6)
print(frontier)
lower, upper = frontier.envelope(0.03)
assert_type(upper - lower, float)

lake = cm.GymnasiumEnv(
    "FrozenLake-v1",
    discount=0.95,
    success_rate=0.8,
    signals={"fall": lambda o, a, p, reward, ended: float(ended and reward == 0)},
)
crossing = cm.Problem(
    lake, maximize=cm.linear("reward"), subject_to={"fall": cm.linear("fall") <= 0.25}
)
learner = cm.VRPDPG(
    iterations=200,
    primal_step=0.3,
    dual_step=0.1,
    momentum=0.3,
    horizon=80,
    batch_size=16,
    baseline=True,
)
learned = cm.solve(crossing, learner, seed=0)
seen = cm.evaluate(learned, lake, episodes=200, seed=1)
assert_type(seen.slack["fall"].lower, float)
