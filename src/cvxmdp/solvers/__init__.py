"""Solvers: settings that users choose, each with the work it does."""
