"""The paper's experiments: instances, settings, and what was published."""

from cvxmdp.paper.tracking import INSTANCES, expert_occupancy, tracking_model, tracking_problem

__all__ = ["INSTANCES", "expert_occupancy", "tracking_model", "tracking_problem"]
