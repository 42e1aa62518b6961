"""Which solver is taken where none is given."""

from __future__ import annotations

from cvxmdp.base.errors import SettingsError
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.actor_critic import ActorCritic
from cvxmdp.solvers.actor_critic_setup import choose
from cvxmdp.solvers.contract import Solver
from cvxmdp.solvers.exact_choice import choose_exact
from cvxmdp.solvers.model_based import ModelBased
from cvxmdp.solvers.playing import MOST_STATES


def choose_solver(problem: Problem, steps: int | None = None) -> tuple[Solver, str]:
    """The solver for a problem, and the reason in words.

    Args:
        problem: with a model, which is solved exactly; or with an environment.
        steps: of the environment that may be played.
    """
    environment = environment_of(problem)
    if environment is None:
        problem.require_model("an exact solver, which is chosen where none is given,")
        if steps is not None:
            raise SettingsError(
                f"steps={steps!r} is how long to play in an environment; this is a model, and solved "
                "exactly without a single step: leave it out. To learn from its episodes nevertheless: "
                f"solve(problem, ModelBased(steps={steps!r}), seed=0)."
            )
        return choose_exact(problem)
    if steps is None:
        problem.require_model("an exact solver, which is chosen where none is given,")
    assert steps is not None
    many = not environment.has_states or environment.n_states > MOST_STATES
    if many or environment.horizon.limit is not None:
        states = f"{environment.n_states:,} states"
        what = states if environment.has_states else "observations that are no states"
        why = f"{what} cannot be counted"
        if not many:
            why = f"to count and plan needs a discount, and here {environment.horizon} count"
        learner = ActorCritic(steps)
        settings = choose(learner, problem).words
        return learner, (
            f"{why}, and this learns from what it sees (ActorCritic: steps {steps:,}, {settings})"
        )
    kind = "states" if environment.features is None else "bins"
    reason = (
        f"{environment.n_states:,} {kind} can be counted: to count and plan needs far fewer steps than to "
        f"follow gradients (ModelBased: steps {steps:,}, confidence 0.95)"
    )
    return ModelBased(steps), reason
