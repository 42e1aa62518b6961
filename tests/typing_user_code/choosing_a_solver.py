"""A choice of solvers, what they return, and the errors a careful user catches."""

import cvxmdp as cm


def best(problem: cm.Problem, limit: int) -> cm.Solution:
    """Exact where the model is small, else by columns; a warm start for policy gradient."""
    exact = problem.mdp.n_states <= limit
    first = cm.solve(problem, cm.ConvexProgram() if exact else cm.ColumnGeneration(tolerance=1e-4))
    if first.status is cm.Status.INFEASIBLE:
        print(cm.slater(problem))
        return first
    gradient = cm.PDPG(iterations=200, policy=cm.Table())
    return cm.solve(problem, gradient, start=first, folder="run", time_limit=60.0)


def careful(problem: cm.Problem) -> float:
    """The objective, or what went wrong."""
    try:
        found = best(problem, 1_000)
    except cm.SettingsError as error:
        raise SystemExit(f"settings: {error}") from error
    except cm.DivergedError:
        return float("nan")
    except cm.CvxmdpError as error:
        raise SystemExit(str(error)) from error
    worst = min(found.slack.values(), default=0.0)
    return found.objective if worst >= 0 else float("-inf")


policy: cm.Policy = best(cm.Problem(cm.gridworld(4), maximize=cm.entropy()), 100).policy
action: int = cm.TabularPolicy(policy.probabilities()).probabilities(0).argmax().item()
