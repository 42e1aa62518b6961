"""Runs: one loop for every solver, sweeps of many, frontiers, and the folders they are kept in."""
