"""Policies: a small protocol and its members."""

from cvxmdp.policies.files import load_policy
from cvxmdp.policies.policy import Policy
from cvxmdp.policies.softmax import SoftmaxTable
from cvxmdp.policies.tabular import TabularPolicy

__all__ = ["Policy", "SoftmaxTable", "TabularPolicy", "load_policy"]
