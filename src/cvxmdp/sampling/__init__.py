"""Learning from samples: trajectories, estimators, VR-PDPG."""

from cvxmdp.sampling.vr_pdpg import VRPDPG

__all__ = ["VRPDPG"]
