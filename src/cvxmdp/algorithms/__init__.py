"""Algorithms: pure steps from state to state, without settings, clocks or words."""
