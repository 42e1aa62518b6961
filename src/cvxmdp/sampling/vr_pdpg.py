r"""VR-PDPG: variance-reduced primal-dual policy gradient from samples (Algorithm 1 of the paper).

| paper              | argument                       |
|--------------------|--------------------------------|
| T, H               | ``iterations``, ``horizon``    |
| eta_theta, eta_mu  | ``primal_step``, ``dual_step`` |
| alpha_t            | ``momentum``                   |
| C_0, mu_0          | ``dual_bound``, ``initial_multiplier`` |
| delta              | ``pessimism``                  |

``momentum=1`` is the paper's first baseline, ``momentum=1`` with ``batch_size=100`` its second ("Avg").
``recursion`` has the iteration itself. The model is only sampled from; where it is known (a tabular one always
is), the history carries the exact objective and slack of the current policy every ``evaluate_every`` iterations
beside what the episodes showed, so that a learning curve shows truth and sample.

Two quantities are never mixed: ``slack`` and ``violation`` speak of the policy's occupancy, an expectation;
``episode_slack`` of the occupancy of single episodes, whose mean distance to an expert is larger (Jensen).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.errors import SolverError
from cvxmdp.exact.settings import per_constraint, read_start
from cvxmdp.occupancy import policy_of
from cvxmdp.policies.families import BoundDirect, BoundFamily, PolicyFamily, Table
from cvxmdp.problem import Problem
from cvxmdp.progress import Progress
from cvxmdp.sampling.recursion import (
    Learning,
    LearningState,
    LearningTrace,
    first_iteration,
    iteration,
    uniforms_shape,
)
from cvxmdp.sampling.trajectories import sampling_model
from cvxmdp.solution import Solution, Status

ITERATES = ("last", "average")
SQUARE_ROOT = "square root"  # the theorem's momentum, (t + 1)^(-1/2)


@dataclass(frozen=True)
class VRPDPG:
    """Variance-reduced primal-dual policy gradient, Algorithm 1 to the letter.

    Attributes:
        iterations: T.
        primal_step: the length of each step in the parameters, eta_theta.
        dual_step: eta_mu, a number or one per constraint.
        momentum: alpha in (0, 1], or "square root" for the theorem's (t+1)^(-1/2).
        horizon: H, the longest episode.
        batch_size: trajectories per iteration.
        dual_bound: the box of the multipliers, a number or one per constraint.
        initial_multiplier: mu_0.
        policy: the family of policies.
        pessimism: asks for slack of at least this much, a number or one per constraint.
        iterate: "last", or "average": the policy of the average exact occupancy over the last half.
        weight_cap: a cap on the importance weight; none in the paper.
        evaluate_every: iterations between exact evaluations, progress and interruption.
        progress: show a progress line; by default on a terminal.
    """

    iterations: int
    primal_step: float
    dual_step: float | Mapping[str, float]
    momentum: float | str
    horizon: int
    batch_size: int = 1
    dual_bound: float | Mapping[str, float] = 10.0
    initial_multiplier: float | Mapping[str, float] = 0.0
    policy: PolicyFamily = field(default_factory=Table)
    pessimism: float | Mapping[str, float] = 0.0
    iterate: str = "last"
    weight_cap: float = math.inf
    evaluate_every: int = 250
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name in ("iterations", "horizon", "batch_size", "evaluate_every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SolverError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not (isinstance(self.primal_step, int | float) and 0 < self.primal_step < math.inf):
            raise SolverError(f"primal_step must be positive and finite; got {self.primal_step!r}")
        if isinstance(self.momentum, str):
            if self.momentum != SQUARE_ROOT:
                raise SolverError(
                    f"momentum must be a number or {SQUARE_ROOT!r}; got {self.momentum!r}"
                )
        elif not (isinstance(self.momentum, int | float) and 0.0 < self.momentum <= 1.0):
            raise SolverError(
                f"momentum must be in (0, 1]: 1 forgets the past, small values average over it; got "
                f"{self.momentum!r}"
            )
        if self.iterate not in ITERATES:
            raise SolverError(f"iterate must be one of {', '.join(ITERATES)}; got {self.iterate!r}")
        if not (isinstance(self.weight_cap, int | float) and self.weight_cap > 0):
            raise SolverError(f"weight_cap must be positive; got {self.weight_cap!r}")

    @classmethod
    def theory(cls, iterations: int, discount: float, **settings: Any) -> VRPDPG:
        """The schedule of the theorem on the sample-based setting.

        eta_theta = T^(-1/2), eta_mu = T^(-3/4), alpha_t = (t+1)^(-1/2) as in its proof (its statement's
        (t+1)^(-1) is a misprint: with it the error does not vanish), H = ceil(log_{1/gamma}(T) / 2).

        Args:
            iterations: T.
            discount: gamma.
            **settings: any other setting of ``VRPDPG``.
        """
        from cvxmdp.theory import sample_schedule

        schedule = sample_schedule(iterations, discount)
        chosen: dict[str, Any] = {
            "iterations": iterations,
            "primal_step": schedule.primal_step,
            "dual_step": schedule.dual_step,
            "momentum": SQUARE_ROOT,
            "horizon": schedule.horizon,
        }
        return cls(**{**chosen, **settings})

    def solve(self, problem: Problem, start: Any = None, seed: int | None = None) -> Solution:
        """Learn from samples. ``seed`` is required; ``start`` is a policy or a solution."""
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise SolverError(
                f"sampling needs a seed, so that the run can be repeated: solve(..., seed=0); got {seed!r}"
            )
        return _Run(self, problem, start, int(seed)).go()


@jax.jit
def run_first(learning: Learning, params: Any, multipliers: Any, key: Any) -> Any:
    """Iteration 0 and the state it leaves."""
    uniforms = jax.random.uniform(key, uniforms_shape(learning))
    return first_iteration(learning, params, multipliers, uniforms)


@partial(jax.jit, static_argnames=("length",))
def run_chunk(learning: Learning, state: LearningState, key: Any, length: int) -> Any:
    """``length`` iterations; the random numbers of iteration t depend on the key and on t alone."""

    def step(state: LearningState, _: None) -> Any:
        numbers = jax.random.uniform(jax.random.fold_in(key, state.step), uniforms_shape(learning))
        return iteration(learning, state, numbers)

    return jax.lax.scan(step, state, None, length=length)


class _Run:
    """One call of ``solve``."""

    def __init__(self, solver: VRPDPG, problem: Problem, start: Any, seed: int) -> None:
        self.solver, self.problem = solver, problem
        self.family: BoundFamily = solver.policy.bind(problem.mdp)
        if isinstance(self.family, BoundDirect):
            raise SolverError(
                "VR-PDPG needs scores: use Table(), LinearSoftmax, MLP or an Equinox module"
            )
        theorem = isinstance(solver.momentum, str)
        self.pessimism = per_constraint(solver.pessimism, problem, "pessimism")
        self.learning = Learning(
            sampling_model(problem.mdp),
            problem.objective_function.extended(),
            tuple(slack.extended() for slack in problem.slack_functions.values()),
            self.family,
            float(solver.primal_step),
            per_constraint(solver.dual_step, problem, "dual_step"),
            per_constraint(solver.dual_bound, problem, "dual_bound"),
            self.pessimism,
            1.0 if theorem else float(solver.momentum),
            0.5 if theorem else 0.0,
            float(solver.weight_cap),
            solver.horizon,
            solver.batch_size,
        )
        first, self.key = jax.random.split(jax.random.key(seed))
        self.multipliers = self._read_multipliers()
        if start is None:
            self.params = self.family.init(first)
        else:
            claims: Any = None  # only asked for where there is no start
            self.params, given = read_start(
                problem, self.family, claims, start, seed, solver.initial_multiplier
            )
            self.multipliers = np.minimum(given, self.learning.dual_bound)
        self.traces: list[LearningTrace] = []
        self.exact: list[tuple[int, float, list[float]]] = []
        self.visits: list[tuple[int, np.ndarray]] = []

    def _read_multipliers(self) -> np.ndarray:
        given = per_constraint(self.solver.initial_multiplier, self.problem, "initial_multiplier")
        outside = given > self.learning.dual_bound
        if outside.any():
            k = int(np.argmax(outside))
            raise SolverError(
                f"the initial_multiplier of {list(self.problem.constraints)[k]!r} is {given[k]:g}, outside "
                f"the box that ends at dual_bound={self.learning.dual_bound[k]:g}"
            )
        return given

    def go(self) -> Solution:
        """Iterate, evaluate now and then, and answer."""
        solver, started = self.solver, time.perf_counter()
        progress = Progress("VR-PDPG", solver.iterations, solver.progress)
        single = partial(jnp.asarray, dtype=jnp.float32)
        params = jax.tree.map(single, self.params)
        status = Status.ITERATION_LIMIT
        state, trace = run_first(self.learning, params, single(self.multipliers), self.key)
        done = self._keep(jax.tree.map(lambda leaf: leaf[None], trace), state, 1)
        try:
            while done < solver.iterations:
                length = min(solver.evaluate_every, solver.iterations - done)
                following, trace = run_chunk(self.learning, state, self.key, length)
                done = self._keep(trace, following, done + length)
                state = following
                progress.update(done, f"objective {self.exact[-1][1]:.5g}")
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        finally:
            progress.close()
        return self._solution(state, status, done, time.perf_counter() - started)

    def _keep(self, trace: Any, state: LearningState, done: int) -> int:
        """Check a chunk, put it into the history, and evaluate the policy it ends with."""
        kept = jax.tree.map(np.asarray, trace)
        fine = np.isfinite(kept.gradient_norm) & np.isfinite(kept.recursive_slack).all(axis=1)
        fine &= np.isfinite(kept.weight_max)
        if not fine.all():
            first = done - fine.size + int(np.argmin(fine))
            raise SolverError(
                f"iteration {first}: the norm of the gradient is {kept.gradient_norm[np.argmin(fine)]}, "
                f"the largest importance weight {kept.weight_max[np.argmin(fine)]}. Likely causes: steps so "
                "large that the weights explode (try a smaller primal_step or a weight_cap), or a utility of "
                "your own that is not finite at points that are no occupancies."
            )
        policy = self.family.deploy(state.params)
        found = self.problem.evaluate(policy)
        # Nothing is kept before everything is known: an interrupt leaves no half of a chunk behind.
        self.traces.append(kept)
        self.exact.append((done, found.objective, list(found.slack.values())))
        self.visits.append((done, found.occupancy))
        while len(self.visits) > 1 and self.visits[0][0] < self.solver.iterations // 2:
            self.visits.pop(0)  # only the last half is averaged
        return done

    def _solution(
        self, state: LearningState, status: Status, done: int, seconds: float
    ) -> Solution:
        names = list(self.problem.constraints)
        trace = LearningTrace(*(np.concatenate(parts) for parts in zip(*self.traces, strict=True)))
        policy = self.family.deploy(state.params)
        multipliers = np.asarray(state.multipliers)  # mu_T, beside theta_T
        if self.solver.iterate == "average":
            mean = np.mean([occupancy for _, occupancy in self.visits], axis=0)
            policy = policy_of(self.problem.mdp, mean)
            if names:
                multipliers = trace.multipliers[done // 2 :].mean(axis=0)
        slacks = np.array([slack for _, _, slack in self.exact]).reshape(
            len(self.exact), len(names)
        )
        history = {
            "iteration": np.array([at for at, _, _ in self.exact]),
            "objective": np.array([objective for _, objective, _ in self.exact]),
            "slack": {name: slacks[:, k] for k, name in enumerate(names)},
            "episode_objective": self.problem.sign * trace.episode_objective,
            "episode_slack": self._by_name(trace.episode_slack + self.pessimism),
            "recursive_slack": self._by_name(trace.recursive_slack + self.pessimism),
            "multipliers": self._by_name(trace.multipliers),
            "gradient_norm": trace.gradient_norm,
            "weight_mean": trace.weight_mean,
            "weight_max": trace.weight_max,
            "effective_sample_size": trace.effective_sample_size,
            "episode_length": trace.episode_length,
        }
        stats = {
            "solver": f"VR-PDPG (momentum {self.solver.momentum})",
            "iterations": done,
            "seconds": seconds,
            "samples": round(trace.episode_length.sum(dtype=float) * self.solver.batch_size),
            "params": jax.tree.map(np.asarray, state.params),
        }
        named = {name: float(mu) for name, mu in zip(names, multipliers, strict=True)}
        return Solution.of_policy(
            self.problem, policy, status, named, history=history, stats=stats, message=status.value
        )

    def _by_name(self, columns: np.ndarray) -> dict[str, np.ndarray]:
        return {name: columns[:, k] for k, name in enumerate(self.problem.constraints)}
