"""Utilities of one's own, in both ways of declaring them, and the algebra."""

import jax
import jax.numpy as jnp

import cvxmdp as cm


@cm.concave
def coverage(occupancy: jax.Array) -> jax.Array:
    """How much is seen of every state."""
    return jnp.log(occupancy.sum(axis=1) + 1e-3).mean()


@cm.convex(lipschitz=1.0, smoothness=1.0)
def wear(occupancy: jax.Array) -> jax.Array:
    """What it costs."""
    return 0.5 * (occupancy**2).sum()


mdp = cm.gridworld(4, hazards=[5])
objective: cm.Utility = coverage + 0.1 * cm.entropy(of="state-action") - 2 * wear
allowed: cm.Constraint = wear <= 3.0
fair = cm.minimum(cm.linear("reward"), 3 - cm.linear("hazard"))
problem = cm.Problem(mdp, maximize=objective, subject_to={"wear": allowed, "fair": fair >= 0.1})
print(cm.check_utility(coverage, mdp))
looser: cm.Problem = problem.with_budget("wear", 4.0)
