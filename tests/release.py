"""Does what would be published work where nothing else is? ``make dist`` builds it, and this tries it.

Each case is an empty environment with the wheel and one extra (or none): the package is imported, a problem
is solved, its certificate is checked, and what the extra is for is used once. Then the core's tests run against
the installed wheel, with every Python that can be had, and with the oldest direct dependencies that
pyproject.toml allows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
CORE_TESTS = ("test_models", "test_occupancy", "test_oracle", "test_checker", "test_algebra")

SOLVE = """
import cvxmdp as cm
mdp = cm.gridworld(4, discount=0.9, hazards=[5], goal=15)
problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"hazard": cm.linear("hazard") <= 0.1})
solution = cm.solve(problem)
assert solution.status == cm.Status.OPTIMAL and cm.check(cm.certify(problem, solution), problem)
"""
USE = {
    "convex": "assert cm.solve(cm.Problem(mdp, maximize=cm.entropy()), cm.ConvexProgram()).objective > 2",
    "exact": "assert cm.check(cm.certify(problem, solution), problem, exact=True)",
    "gym": "assert cm.from_gymnasium_table('FrozenLake-v1', discount=0.9).n_states == 16",
    "nn": "cm.MLP(8)",
    "cli": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'cvxmdp', '--version'], check=True)",
    "report": "solution.plot('solution.png'); cm.report(solution, 'report.html')",
}


def environment(folder: Path, python: str) -> Path:
    """A new, empty environment; returns its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    """Packages into an environment, quietly."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    subprocess.run(command, check=True)


def interpreter(version: str) -> str | None:
    """The command of a Python of this version on this machine, or None."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version == own:
        return sys.executable
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    candidates = [
        f"python{version}",
        *map(str, Path(root).glob(f"versions/{version}.*/bin/python")),
    ]
    for candidate in candidates:
        try:
            said = subprocess.run(
                [candidate, "--version"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        if said.stdout.startswith(f"Python {version}."):
            return candidate
    return None


def try_extra(wheel: Path, extra: str, python: str, folder: Path) -> None:
    """Install the wheel with one extra (or "none") into an empty environment and use it there."""
    inside = environment(folder, python)
    install(inside, wheel if extra == "none" else f"{wheel}[{extra}]")
    code = SOLVE + "\n".join(USE.values() if extra == "all" else [USE.get(extra, "")])
    subprocess.run([inside, "-c", code], check=True, cwd=folder)


def core_tests(wheel: Path, python: str, folder: Path, *pins: str | Path) -> None:
    """The core's tests against the installed wheel: no source folder is on the path."""
    inside = environment(folder, python)
    install(inside, f"{wheel}[all]", "pytest", "hypothesis", *pins)
    tests = [ROOT / "tests" / f"{name}.py" for name in CORE_TESTS]
    subprocess.run(
        [inside, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], check=True
    )


def lowest(folder: Path) -> Path:
    """The oldest direct dependencies that pyproject.toml allows, as constraints (uv resolves them)."""
    pins = folder / "lowest.txt"
    command = ["uv", "pip", "compile", "--quiet", "--all-extras", "--resolution", "lowest-direct"]
    subprocess.run(
        [sys.executable, "-m", *command, ROOT / "pyproject.toml", "-o", pins], check=True
    )
    return pins


def main() -> None:
    """Try the wheel in dist/ case by case; the first failure ends it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cases = ["none", *project["optional-dependencies"], "tests", "lowest"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=cases, help=f"of {', '.join(cases)}")
    wheel = ROOT / "dist" / f"cvxmdp-{project['version']}-py3-none-any.whl"
    for case in parser.parse_args().cases:
        pythons = PYTHONS if case == "tests" else PYTHONS[:1]
        for version in pythons:
            python = interpreter(version)
            if python is None:
                print(
                    f"{case}, Python {version}: not tried, there is none on this machine",
                    flush=True,
                )
                continue
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / "environment"
                if case == "tests":
                    core_tests(wheel, python, place)
                elif case == "lowest":
                    core_tests(wheel, python, place, "--constraint", lowest(Path(folder)))
                else:
                    try_extra(wheel, case, python, place)
            print(f"{case}, Python {version}: works", flush=True)


if __name__ == "__main__":
    main()
