"""``python -m cvxmdp`` is the command ``cvxmdp``."""

from cvxmdp.cli import app

app()
