"""Policies: a small protocol and its members."""

from cvxmdp.policies.policy import Policy
from cvxmdp.policies.policy_file import load_policy
from cvxmdp.policies.tables import SoftmaxTable, TabularPolicy

__all__ = ["Policy", "SoftmaxTable", "TabularPolicy", "load_policy"]
