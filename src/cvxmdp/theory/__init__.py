"""The paper's theory as numbers: constants, schedules and bounds, each with its lemma."""

from cvxmdp.theory.compare import Comparison, Rate, compare, fit_rate
from cvxmdp.theory.constants import ProblemConstants, problem_constants
from cvxmdp.theory.parameterisation import (
    DirectConstants,
    ParameterisationConstants,
    TheoryError,
    direct_constants,
    softmax_table_constants,
)
from cvxmdp.theory.theorem_exact import (
    TheoremBound,
    average_lagrangian_bound,
    decoupled_bound,
    exact_bound,
    strong_average_lagrangian_bound,
    strong_mixing,
)
from cvxmdp.theory.theorem_sample import (
    SampleConstants,
    SampleSchedule,
    sample_bound,
    sample_constants,
    sample_schedule,
)
from cvxmdp.theory.theorem_zero import (
    ExactSchedule,
    exact_schedule,
    iterations_for_zero_violation,
    pessimism_equation,
    theory_pessimism,
    zero_violation_bound,
)
from cvxmdp.theory.theorem_zero_sample import (
    SamplePlan,
    iterations_for_sampled_zero_violation,
    sample_plan,
    sampled_pessimism,
    sampled_pessimism_equation,
    sampled_zero_violation_bound,
)

__all__ = [
    "Comparison",
    "DirectConstants",
    "ExactSchedule",
    "ParameterisationConstants",
    "ProblemConstants",
    "Rate",
    "SampleConstants",
    "SamplePlan",
    "SampleSchedule",
    "TheoremBound",
    "TheoryError",
    "average_lagrangian_bound",
    "compare",
    "decoupled_bound",
    "direct_constants",
    "exact_bound",
    "exact_schedule",
    "fit_rate",
    "iterations_for_sampled_zero_violation",
    "iterations_for_zero_violation",
    "pessimism_equation",
    "problem_constants",
    "sample_bound",
    "sample_constants",
    "sample_plan",
    "sample_schedule",
    "sampled_pessimism",
    "sampled_pessimism_equation",
    "sampled_zero_violation_bound",
    "softmax_table_constants",
    "strong_average_lagrangian_bound",
    "strong_mixing",
    "theory_pessimism",
    "zero_violation_bound",
]
