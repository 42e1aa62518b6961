"""cvxmdp: concave constrained Markov decision processes.

Maximise a concave function of a policy's occupancy measure under concave constraints on the same
measure. ``import cvxmdp as cm`` costs nothing: parts are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cvxmdp.base.version import __version__

__all__ = [
    "MLP",
    "PDPG",
    "VRPDPG",
    "Certificate",
    "Check",
    "ColumnGeneration",
    "Constraint",
    "ConvexProgram",
    "CrossCheck",
    "Curvature",
    "CurvatureError",
    "CvxmdpError",
    "CvxmdpWarning",
    "Demonstrations",
    "Direct",
    "DivergedError",
    "EquinoxModule",
    "ExperienceError",
    "FeatureFunction",
    "FileFormatError",
    "Front",
    "Frontier",
    "GridLayout",
    "GymnasiumEnv",
    "JaxEnv",
    "LinearSoftmax",
    "MissingExtraError",
    "ModelBased",
    "ModelError",
    "Normalised",
    "OneHot",
    "Policy",
    "PolicyError",
    "PolicyEvaluation",
    "Problem",
    "ProblemError",
    "RandomFourier",
    "SettingsError",
    "Slater",
    "SoftmaxTable",
    "Solution",
    "SolverError",
    "Status",
    "Sweep",
    "Table",
    "TabularMDP",
    "TabularPolicy",
    "TimedPolicy",
    "UniformBins",
    "Utility",
    "UtilityError",
    "__version__",
    "ball",
    "box",
    "certify",
    "check",
    "check_utility",
    "compilation_cache",
    "concave",
    "convex",
    "cross_check",
    "demonstrations",
    "distance",
    "entropy",
    "evaluate",
    "from_function",
    "from_gymnasium_table",
    "from_prism",
    "from_storm",
    "from_transitions",
    "from_umb",
    "frontier",
    "garnet",
    "gridworld",
    "linear",
    "load_policy",
    "load_problem",
    "load_solution",
    "log_barrier",
    "log_sum",
    "minimum",
    "occupancy_of",
    "pareto",
    "policy_of",
    "polytope",
    "power",
    "quadratic",
    "record_episode",
    "report",
    "returns",
    "share",
    "slater",
    "solve",
    "sqrt",
    "state_distribution",
    "sweep",
    "to_prism",
    "uniform_policy",
]

if TYPE_CHECKING:
    from cvxmdp.atoms.curvature import Curvature
    from cvxmdp.atoms.custom import concave, convex
    from cvxmdp.atoms.distance import distance
    from cvxmdp.atoms.entropy import entropy
    from cvxmdp.atoms.linear import linear
    from cvxmdp.atoms.logarithm import log_barrier, log_sum
    from cvxmdp.atoms.minimum import minimum
    from cvxmdp.atoms.powers import power, sqrt
    from cvxmdp.atoms.probing import check_utility
    from cvxmdp.atoms.quadratic import quadratic
    from cvxmdp.atoms.returns import returns
    from cvxmdp.atoms.sets import ball, box, polytope
    from cvxmdp.atoms.share import share
    from cvxmdp.atoms.utility import Constraint, Utility
    from cvxmdp.base.errors import (
        CurvatureError,
        CvxmdpError,
        CvxmdpWarning,
        DivergedError,
        ExperienceError,
        FileFormatError,
        MissingExtraError,
        ModelError,
        PolicyError,
        ProblemError,
        SettingsError,
        SolverError,
        UtilityError,
    )
    from cvxmdp.base.program_cache import compilation_cache
    from cvxmdp.certificates.certificate import Certificate
    from cvxmdp.certificates.certify import certify
    from cvxmdp.certificates.checking import check
    from cvxmdp.certificates.slater import Slater, slater
    from cvxmdp.checker.check import Check
    from cvxmdp.experience.demonstrations import Demonstrations, demonstrations
    from cvxmdp.experience.environments.gymnasium_env import GymnasiumEnv
    from cvxmdp.experience.environments.jax_env import JaxEnv
    from cvxmdp.experience.evaluation import evaluate
    from cvxmdp.experience.logs import from_transitions
    from cvxmdp.experience.policy_evaluation import PolicyEvaluation
    from cvxmdp.experience.rendering import record_episode
    from cvxmdp.models.garnet import garnet
    from cvxmdp.models.gridworld import gridworld
    from cvxmdp.models.importers.gymnasium_table import from_gymnasium_table
    from cvxmdp.models.importers.prism import from_prism
    from cvxmdp.models.importers.prism_writer import to_prism
    from cvxmdp.models.importers.successor_function import from_function
    from cvxmdp.models.importers.umb import from_umb
    from cvxmdp.models.layout import GridLayout
    from cvxmdp.models.table import TabularMDP
    from cvxmdp.policies.families import Direct, LinearSoftmax, Table
    from cvxmdp.policies.features import FeatureFunction, OneHot, RandomFourier, UniformBins
    from cvxmdp.policies.networks import MLP, EquinoxModule
    from cvxmdp.policies.occupancies import (
        occupancy_of,
        policy_of,
        state_distribution,
        uniform_policy,
    )
    from cvxmdp.policies.policy import Policy
    from cvxmdp.policies.policy_file import load_policy
    from cvxmdp.policies.tables import SoftmaxTable, TabularPolicy
    from cvxmdp.policies.timed_policy import TimedPolicy
    from cvxmdp.problems.problem import Problem, load_problem
    from cvxmdp.problems.solution import Solution, Status, load_solution
    from cvxmdp.problems.storm_queries import from_storm
    from cvxmdp.reports.html_page import report
    from cvxmdp.runs.cross_check import CrossCheck, cross_check
    from cvxmdp.runs.front import Front
    from cvxmdp.runs.frontier import Frontier, frontier
    from cvxmdp.runs.pareto import pareto
    from cvxmdp.runs.solving import solve
    from cvxmdp.runs.sweep_results import Sweep
    from cvxmdp.runs.sweeping import sweep
    from cvxmdp.solvers.column_generation import ColumnGeneration
    from cvxmdp.solvers.convex_program import ConvexProgram
    from cvxmdp.solvers.model_based import ModelBased
    from cvxmdp.solvers.pdpg import PDPG
    from cvxmdp.solvers.start import Normalised
    from cvxmdp.solvers.vr_pdpg import VRPDPG

# Where each name lives; a test holds this table, ``__all__`` and the imports above together.
_WHERE = {
    "atoms.curvature": ("Curvature",),
    "atoms.custom": (
        "concave",
        "convex",
    ),
    "atoms.distance": ("distance",),
    "atoms.entropy": ("entropy",),
    "atoms.linear": ("linear",),
    "atoms.logarithm": (
        "log_barrier",
        "log_sum",
    ),
    "atoms.minimum": ("minimum",),
    "atoms.powers": (
        "power",
        "sqrt",
    ),
    "atoms.probing": ("check_utility",),
    "atoms.quadratic": ("quadratic",),
    "atoms.returns": ("returns",),
    "atoms.share": ("share",),
    "atoms.sets": (
        "ball",
        "box",
        "polytope",
    ),
    "atoms.utility": (
        "Constraint",
        "Utility",
    ),
    "base.errors": (
        "CurvatureError",
        "CvxmdpError",
        "CvxmdpWarning",
        "DivergedError",
        "ExperienceError",
        "FileFormatError",
        "MissingExtraError",
        "ModelError",
        "PolicyError",
        "ProblemError",
        "SettingsError",
        "SolverError",
        "UtilityError",
    ),
    "base.program_cache": ("compilation_cache",),
    "certificates.certificate": ("Certificate",),
    "certificates.certify": ("certify",),
    "certificates.checking": ("check",),
    "certificates.slater": (
        "Slater",
        "slater",
    ),
    "checker.check": ("Check",),
    "experience.demonstrations": (
        "Demonstrations",
        "demonstrations",
    ),
    "experience.environments.gymnasium_env": ("GymnasiumEnv",),
    "experience.environments.jax_env": ("JaxEnv",),
    "experience.evaluation": ("evaluate",),
    "experience.logs": ("from_transitions",),
    "experience.policy_evaluation": ("PolicyEvaluation",),
    "experience.rendering": ("record_episode",),
    "policies.occupancies": (
        "occupancy_of",
        "policy_of",
        "state_distribution",
        "uniform_policy",
    ),
    "models.garnet": ("garnet",),
    "models.gridworld": ("gridworld",),
    "models.importers.gymnasium_table": ("from_gymnasium_table",),
    "models.importers.prism": ("from_prism",),
    "models.importers.prism_writer": ("to_prism",),
    "models.importers.successor_function": ("from_function",),
    "models.importers.umb": ("from_umb",),
    "models.layout": ("GridLayout",),
    "models.table": ("TabularMDP",),
    "policies.families": (
        "Direct",
        "LinearSoftmax",
        "Table",
    ),
    "policies.networks": ("EquinoxModule", "MLP"),
    "policies.features": (
        "FeatureFunction",
        "OneHot",
        "RandomFourier",
        "UniformBins",
    ),
    "policies.policy": ("Policy",),
    "policies.policy_file": ("load_policy",),
    "policies.tables": ("SoftmaxTable", "TabularPolicy"),
    "policies.timed_policy": ("TimedPolicy",),
    "problems.problem": (
        "Problem",
        "load_problem",
    ),
    "problems.solution": (
        "Solution",
        "Status",
        "load_solution",
    ),
    "problems.storm_queries": ("from_storm",),
    "reports.html_page": ("report",),
    "runs.cross_check": (
        "CrossCheck",
        "cross_check",
    ),
    "runs.front": ("Front",),
    "runs.frontier": (
        "Frontier",
        "frontier",
    ),
    "runs.pareto": ("pareto",),
    "runs.solving": ("solve",),
    "runs.sweep_results": ("Sweep",),
    "runs.sweeping": ("sweep",),
    "solvers.column_generation": ("ColumnGeneration",),
    "solvers.convex_program": ("ConvexProgram",),
    "solvers.pdpg": ("PDPG",),
    "solvers.start": ("Normalised",),
    "solvers.model_based": ("ModelBased",),
    "solvers.vr_pdpg": ("VRPDPG",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        # Only close names: an error that lists the whole library helps nobody.
        from difflib import get_close_matches

        close = get_close_matches(name, _MODULE_OF, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise AttributeError(f"module 'cvxmdp' has no attribute {name!r}.{hint}")
    value = getattr(importlib.import_module(f"cvxmdp.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
