"""Environments: experience from Gymnasium, features, demonstrations, and what a policy is worth there."""

from cvxmdp.environments.demonstrations import Demonstrations, demonstrations
from cvxmdp.environments.evaluation import evaluate
from cvxmdp.environments.features import FeatureFunction, OneHot, RandomFourier, UniformBins
from cvxmdp.environments.gymnasium import GymnasiumEnv
from cvxmdp.environments.rendering import record_episode
from cvxmdp.environments.result import PolicyEvaluation

__all__ = [
    "Demonstrations",
    "FeatureFunction",
    "GymnasiumEnv",
    "OneHot",
    "PolicyEvaluation",
    "RandomFourier",
    "UniformBins",
    "demonstrations",
    "evaluate",
    "record_episode",
]
