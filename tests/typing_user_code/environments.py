"""Simulators: a function of a step as a signal, demonstrations, evaluation with bounds."""

import cvxmdp as cm


def fell(state: int, action: int, after: int, reward: float, ended: bool) -> float:
    """One where the episode ends without reward."""
    return float(ended and reward == 0)


table = cm.from_gymnasium_table("FrozenLake-v1", 0.95, signals={"fall": fell})
with cm.GymnasiumEnv(
    "CartPole-v1", 0.99, features=cm.UniformBins([-1.0] * 4, [1.0] * 4, 3)
) as cart:
    problem = cm.Problem(cart, maximize=cm.linear("reward"))
    learner = cm.VRPDPG(
        10, 0.1, 0.1, 0.3, 50, policy=cm.MLP(32, inputs=cm.RandomFourier(4, 8, seed=0))
    )
    solution = cm.solve(problem, learner, seed=0)
    found: cm.PolicyEvaluation = cm.evaluate(solution.policy, cart, 100, problem=problem, seed=1)
    action, _ = solution.policy.seed(0).predict([0.0] * 4)
print(found.objective.lower, found.statement)
expert = cm.solve(cm.Problem(table, maximize=cm.linear("reward")))
near = cm.distance(cm.occupancy_of(table, expert.policy), norm="l2") <= 0.5
imitate = cm.Problem(table, minimize=cm.linear("fall"), subject_to={"near the expert": near})
