"""The version of cvxmdp, the one of pyproject.toml."""

__version__ = "0.2.0"
