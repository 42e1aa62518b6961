"""cvxmdp: concave constrained Markov decision processes.

Maximise a concave function of a policy's occupancy measure under concave constraints on the same
measure. ``import cvxmdp as cm`` costs nothing: parts are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "models": (
        "GridLayout",
        "TabularMDP",
        "from_function",
        "from_gymnasium_table",
        "from_prism",
        "from_transitions",
        "garnet",
        "gridworld",
        "to_prism",
    ),
    "utilities": (
        "Constraint",
        "Curvature",
        "Utility",
        "ball",
        "box",
        "check_utility",
        "concave",
        "convex",
        "distance",
        "entropy",
        "linear",
        "log_barrier",
        "log_sum",
        "minimum",
        "polytope",
        "quadratic",
    ),
    "policies": ("Policy", "SoftmaxTable", "TabularPolicy", "load_policy"),
    "policies.families": ("Direct", "EquinoxModule", "LinearSoftmax", "MLP", "Table"),
    "occupancy": ("occupancy_of", "policy_of", "state_distribution", "uniform_policy"),
    "environments.demonstrations": ("Demonstrations", "demonstrations"),
    "environments.evaluation": ("evaluate",),
    "environments.features": ("FeatureFunction", "OneHot", "RandomFourier", "UniformBins"),
    "environments.gymnasium": ("GymnasiumEnv",),
    "environments.jax_env": ("JaxEnv",),
    "environments.rendering": ("record_episode",),
    "environments.result": ("PolicyEvaluation",),
    "problem": ("Problem",),
    "solution": ("Solution", "Status"),
    "exact": ("ColumnGeneration", "ConvexProgram", "Normalised", "PDPG"),
    "exact.frontier": ("Frontier", "frontier"),
    "sampling": ("VRPDPG",),
    "driver": ("solve",),
    "sweeps": ("Sweep", "sweep"),
    "reports.html_page": ("report",),
    "certificates": (
        "Certificate",
        "Check",
        "Slater",
        "certify",
        "check",
        "slater",
    ),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from cvxmdp.errors import did_you_mean

        raise AttributeError(f"cvxmdp has no {name!r}. {did_you_mean(name, _MODULE_OF)}")
    value = getattr(importlib.import_module(f"cvxmdp.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate
    from cvxmdp.certificates.certify import certify
    from cvxmdp.certificates.checker import Check, check
    from cvxmdp.certificates.slater import Slater, slater
    from cvxmdp.driver import solve
    from cvxmdp.environments.demonstrations import Demonstrations, demonstrations
    from cvxmdp.environments.evaluation import evaluate
    from cvxmdp.environments.features import FeatureFunction, OneHot, RandomFourier, UniformBins
    from cvxmdp.environments.gymnasium import GymnasiumEnv
    from cvxmdp.environments.jax_env import JaxEnv
    from cvxmdp.environments.rendering import record_episode
    from cvxmdp.environments.result import PolicyEvaluation
    from cvxmdp.exact import PDPG, ColumnGeneration, ConvexProgram, Normalised
    from cvxmdp.exact.frontier import Frontier, frontier
    from cvxmdp.models import (
        GridLayout,
        TabularMDP,
        from_function,
        from_gymnasium_table,
        from_prism,
        from_transitions,
        garnet,
        gridworld,
        to_prism,
    )
    from cvxmdp.occupancy import occupancy_of, policy_of, state_distribution, uniform_policy
    from cvxmdp.policies import Policy, SoftmaxTable, TabularPolicy, load_policy
    from cvxmdp.policies.families import MLP, Direct, EquinoxModule, LinearSoftmax, Table
    from cvxmdp.problem import Problem
    from cvxmdp.reports.html_page import report
    from cvxmdp.sampling import VRPDPG
    from cvxmdp.solution import Solution, Status
    from cvxmdp.sweeps.results import Sweep
    from cvxmdp.sweeps.sweep import sweep
    from cvxmdp.utilities import (
        Constraint,
        Curvature,
        Utility,
        ball,
        box,
        check_utility,
        concave,
        convex,
        distance,
        entropy,
        linear,
        log_barrier,
        log_sum,
        minimum,
        polytope,
        quadratic,
    )
