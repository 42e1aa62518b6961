r"""PDPG: primal-dual policy gradient with exact gradients (the paper's eq. (algorithm_upate)).

    theta_{t+1} = theta_t + eta_theta grad_theta L(lambda(theta_t), mu_t)
    mu_{t+1}    = Proj_U( mu_t - eta_mu g(lambda(theta_t)) ),       U = [0, C_0]

| paper            | argument         |
|------------------|------------------|
| T                | ``iterations``   |
| eta_theta, eta_mu| ``primal_step``, ``dual_step`` |
| C_0, U           | ``dual_bound``   |
| mu_0             | ``initial_multiplier`` |
| delta            | ``pessimism``    |

The theorems bound averages over the iterations. An average of occupancies is an occupancy, and by concavity
its policy is at least as good and as feasible as the average that the theorem bounds; so a single policy can
be deployed that the theorem speaks of. The average over all iterations carries the burn-in; the default is
the average over the last half. ``primal_dual`` has the iteration itself, and what ``primal_step="auto"`` does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cvxmdp.certificates.bounds import achieved
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import Certifier
from cvxmdp.errors import SolverError
from cvxmdp.exact import primal_dual as core
from cvxmdp.exact.dynamics import dynamics
from cvxmdp.exact.kinks import rounded
from cvxmdp.exact.settings import per_constraint, read_start
from cvxmdp.occupancy import occupancy_of, policy_of
from cvxmdp.policies import Policy, SoftmaxTable
from cvxmdp.policies.families import BoundDirect, BoundFamily, Direct, PolicyFamily, Table
from cvxmdp.precision import double_precision
from cvxmdp.problem import Problem
from cvxmdp.progress import Progress
from cvxmdp.solution import Solution, Status

if TYPE_CHECKING:
    from cvxmdp.theory import DirectConstants, ParameterisationConstants

PROPORTIONAL = 0.1  # of the natural scale of multiplier per slack, for primal_step="auto"
LARGEST_PARAMETER = 1e9  # beyond which no number of steps brings a policy back
ITERATES = ("half", "average", "last", "best")


@dataclass(frozen=True)
class Normalised:
    """A primal step of this length in the direction of the gradient: step / |gradient|."""

    step: float


@dataclass(frozen=True)
class PDPG:
    """Exact primal-dual policy gradient.

    Attributes:
        iterations: T.
        primal_step: "auto" (no tuning, see ``primal_dual``), a number (constant), ``Normalised(number)``,
            or an Optax gradient transformation.
        dual_step: a number, or one per constraint by name; goes with every ``primal_step`` but "auto".
        dual_bound: the box of the multipliers, a number or one per constraint; from ``slater`` if not given.
        direction: "natural" or, as in the paper, "vanilla".
        policy: the family of policies: ``Table()``, ``LinearSoftmax(features)``, ``MLP(32)``, ``Direct()``,
            ``EquinoxModule(module)``.
        iterate: which policy is returned: "half" (of the occupancies averaged over the last half),
            "average" (over all, as the theorems bound it), "last", "best" (the best feasible one).
        pessimism: asks for slack of at least this much: a number, one per constraint, "auto" for the
            smallest (up to a factor of 2) with which the returned policy is certified feasible, or "theory"
            for that of theorem zero (with ``Direct()``, whose constants are known).
        initial_multiplier: mu_0.
        tolerance: certified relative gap at which to stop early; None to never stop early.
        check_every: iterations between checks of the gap, progress and interruption.
        progress: show a progress line; by default on a terminal.
    """

    iterations: int = 2_000
    primal_step: Any = "auto"
    dual_step: float | Mapping[str, float] | None = None
    dual_bound: float | Mapping[str, float] | None = None
    direction: str = "natural"
    policy: PolicyFamily = field(default_factory=Table)
    iterate: str = "half"
    pessimism: float | Mapping[str, float] | str = 0.0
    initial_multiplier: float | Mapping[str, float] = 0.0
    tolerance: float | None = 1e-6
    check_every: int = 100
    progress: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.iterations, int) or self.iterations < 1:
            raise SolverError(
                f"iterations must be a positive whole number; got {self.iterations!r}"
            )
        if not isinstance(self.check_every, int) or self.check_every < 1:
            raise SolverError(
                f"check_every must be a positive whole number; got {self.check_every!r}"
            )
        if self.direction not in ("natural", "vanilla"):
            raise SolverError(f'direction must be "natural" or "vanilla"; got {self.direction!r}')
        if self.iterate not in ITERATES:
            raise SolverError(f"iterate must be one of {', '.join(ITERATES)}; got {self.iterate!r}")
        if isinstance(self.pessimism, str) and self.pessimism not in ("auto", "theory"):
            raise SolverError(
                f'pessimism must be numbers, "auto" or "theory"; got {self.pessimism!r}'
            )
        if self.tolerance is not None and not (
            isinstance(self.tolerance, int | float) and self.tolerance > 0
        ):
            raise SolverError(f"tolerance must be positive, or None; got {self.tolerance!r}")
        if isinstance(self.policy, type) or not isinstance(self.policy, PolicyFamily):
            hint = f"; write {self.policy.__name__}()" if isinstance(self.policy, type) else ""
            raise SolverError(
                f"policy must be a family such as Table() or MLP(32), not {self.policy!r}{hint}"
            )
        self._check_steps()

    def _check_steps(self) -> None:
        step = self.primal_step
        if isinstance(step, str):
            if step != "auto":
                raise SolverError(f'primal_step must be "auto", a number, ...; got {step!r}')
            if self.dual_step is not None:
                raise SolverError(
                    'primal_step="auto" chooses the dual step itself; give a number for both, or none'
                )
            return
        size = step.step if isinstance(step, Normalised) else step
        if isinstance(size, bool) or not (isinstance(size, int | float) or hasattr(size, "update")):
            raise SolverError(
                'primal_step must be "auto", a number, Normalised(number) or an Optax transformation; '
                f"got {step!r}"
            )
        if isinstance(size, int | float) and not (math.isfinite(size) and size > 0):
            raise SolverError(f"primal_step must be positive and finite; got {size}")

    @classmethod
    def theory(
        cls,
        problem: Problem,
        iterations: int,
        *,
        parameterisation: ParameterisationConstants | DirectConstants | None = None,
        strongly_concave: bool = False,
        zero_violation: bool = False,
        **settings: Any,
    ) -> PDPG:
        """The run that the paper's theorems on the exact setting speak of.

        Steps, dual box, mu_0 = 0 and (with ``zero_violation``) the pessimism are the theorem's; the
        direction is the plain gradient and the returned policy that of the average over all iterations.

        Args:
            problem: with utilities that have a smoothness constant; others are refused with the reason.
            iterations: T.
            parameterisation: constants of the family of policies. Without them the direct parameterisation
                is used, the one case in which all are known; for a softmax table give
                ``theory.softmax_table_constants(inverse_lipschitz, inverse_radius)``, whose two arguments
                nobody knows (L_lambda and eps_bar in the paper's assumption).
            strongly_concave: the theorem's case of a strongly concave objective.
            zero_violation: the theorem on zero violation.
            **settings: any other setting of ``PDPG``.
        """
        import cvxmdp.theory as paper

        direct = parameterisation is None
        known = parameterisation or paper.direct_constants(problem.mdp)
        constants = paper.problem_constants(problem, known)
        schedule = paper.exact_schedule(
            constants, iterations, strongly_concave=strongly_concave, zero_violation=zero_violation
        )
        chosen: dict[str, Any] = {
            "iterations": iterations,
            "primal_step": schedule.primal_step,
            "dual_step": schedule.dual_step,
            "dual_bound": schedule.dual_bound,
            "pessimism": schedule.pessimism,
            "direction": "vanilla",
            "policy": Direct() if direct else Table(),
            "iterate": "average",
            "tolerance": None,
        }
        return cls(**{**chosen, **settings})

    def solve(self, problem: Problem, start: Any = None, seed: int | None = None) -> Solution:
        """Run PDPG. ``start`` is a solution or a policy; ``seed`` is for families with random weights."""
        run = _Run(self, problem, start, seed)
        if run.infeasible is not None:
            return run.infeasible
        if isinstance(self.pessimism, str):
            return _zero_violation(run) if self.pessimism == "auto" else run.go(run.theorem_zero())
        pessimism = per_constraint(self.pessimism, problem, "pessimism")
        run.check_pessimism(pessimism)
        return run.go(pessimism)


class Method(NamedTuple):
    """What is compiled: another method is another compilation."""

    kind: str  # "tuned" or "paper"
    rule: str
    direction: str
    transform: Any


@partial(jax.jit, static_argnames=("method", "length"))
def run_chunk(
    compiled: core.Compiled, state: Any, totals: Any, steps: Any, method: Method, length: int
) -> Any:
    """``length`` iterations. Returns the state, the running totals and the history of the chunk."""

    def iteration(carry: Any, _: None) -> Any:
        state, (visits, multipliers, best, best_score) = carry
        if method.kind == "tuned":
            state, point, trace = core.tuned_step(compiled, state, steps, method.direction)
        else:
            state, point, trace = core.paper_step(
                compiled, state, steps, method.rule, method.transform, method.direction
            )
        violated = jnp.maximum(0.0, -(point.slack + compiled.pessimism)).sum()
        score = point.objective - 1e9 * violated
        better = score > best_score
        totals = (
            visits + point.occupancy,
            multipliers + trace.multipliers,
            jnp.where(better, point.occupancy, best),
            jnp.where(better, score, best_score),
        )
        return (state, totals), trace

    return jax.lax.scan(iteration, (state, totals), None, length=length)


evaluate = jax.jit(core.evaluate)


class _Run:
    """One call of ``solve``: reads the settings once, then runs with one pessimism or several."""

    def __init__(self, solver: PDPG, problem: Problem, start: Any, seed: int | None) -> None:
        self.solver, self.problem = solver, problem
        self.certifier = Certifier(problem)
        self.infeasible: Solution | None = None
        self.margins: np.ndarray | None = None  # of the Slater point, where it was asked for
        self.seconds = 0.0
        self.n = len(problem.constraints)
        started = time.perf_counter()
        self.family: BoundFamily = solver.policy.bind(problem.mdp)
        if solver.direction == "natural" and isinstance(self.family, BoundDirect):
            raise SolverError(
                'the direct parameterisation has no score function: use direction="vanilla"'
            )
        self.dual_bound, self.penalty = self._read_dual()
        self.method, self.steps = self._read_method()
        with double_precision():
            self.dynamics = dynamics(problem.mdp)
            self.params, self.multipliers = read_start(
                problem, self.family, self.certifier.claims, start, seed, solver.initial_multiplier
            )
        self.seconds += time.perf_counter() - started

    def _read_dual(self) -> tuple[np.ndarray, np.ndarray]:
        """The box of the multipliers and the strength of the proportional term."""
        if not self.n:
            return np.zeros(0), np.ones(0)
        uniform = self.problem.evaluate(SoftmaxTable.uniform(self.problem.mdp.actions))
        scale = np.abs(np.array(list(uniform.slack.values())))
        if self.solver.dual_bound is not None:
            bound = per_constraint(self.solver.dual_bound, self.problem, "dual_bound")
            return bound, PROPORTIONAL * bound / self._typical(scale, uniform.occupancy)
        room = self.certifier.slater()
        if room.infeasible:
            self.infeasible = self._infeasible()
            return np.ones(self.n), np.ones(self.n)
        if room.dual_bound is None:
            raise SolverError(f"the multipliers have no bound. {room} Give dual_bound= yourself.")
        bound = np.array(list(room.dual_bound.values()))
        self.margins = np.array(list(room.margins.values()))
        # Outside the domain of a logarithm there is no slack to go by.
        scale = np.where(np.isfinite(scale), np.maximum(scale, self.margins), self.margins)
        return bound, PROPORTIONAL * (bound - 1.0 + 1e-12) / scale

    def _infeasible(self) -> Solution:
        message, stats = str(self.certifier.slater()), {"solver": "PDPG"}
        return Solution.without_policy(
            self.problem, Status.INFEASIBLE, message=message, stats=stats
        )

    def _typical(self, scale: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The size of each slack: at the uniform policy, unless it happens to be near zero there."""
        functions = self.problem.slack_functions.values()
        slopes = [np.linalg.norm(np.nan_to_num(g.gradient(x))) for g in functions]
        least = 1e-2 * np.linalg.norm(x) * np.array(slopes) + 1e-12
        return np.where(np.isfinite(scale), np.maximum(scale, least), least)

    def widened(self, pessimism: np.ndarray) -> np.ndarray:
        """C_{0,delta}: the box of the multipliers with margins xi_i - delta_i."""
        if self.margins is None:
            return self.dual_bound
        left = np.maximum(self.margins - pessimism, 0.1 * self.margins)
        return 1.0 + (self.dual_bound - 1.0) * self.margins / left

    def check_pessimism(self, pessimism: np.ndarray) -> None:
        """Refuse a pessimism that leaves no policy."""
        if not pessimism.any():
            return
        room = self.certifier.slater()
        if pessimism.min() > room.margin_bound:
            raise SolverError(
                f"no policy has a slack of at least pessimism = {pessimism.min():.6g} in every "
                f"constraint: the smallest is at most {room.margin_bound:.6g} (proven)"
            )

    def theorem_zero(self) -> np.ndarray:
        """delta of theorem zero; an error that names the T it needs where there is none."""
        import cvxmdp.theory as paper

        known = paper.problem_constants(self.problem, paper.direct_constants(self.problem.mdp))
        pessimism = paper.theory_pessimism(known, self.solver.iterations)
        if not isinstance(self.family, BoundDirect):
            raise SolverError(
                'pessimism="theory" needs the constants of the policies. They are known for '
                "policy=Direct(); for others use PDPG.theory(..., parameterisation=..., "
                "zero_violation=True)."
            )
        return np.full(self.n, pessimism)

    def _read_method(self) -> tuple[Method, Any]:
        solver, step = self.solver, self.solver.primal_step
        if isinstance(step, str):
            return Method("tuned", "auto", solver.direction, None), self.penalty
        if solver.dual_step is None and self.n:
            raise SolverError(
                "a primal step of your own needs a dual_step as well (or use neither)"
            )
        dual = per_constraint(solver.dual_step or 0.0, self.problem, "dual_step")
        if isinstance(step, Normalised):
            return Method("paper", "normalised", solver.direction, None), (step.step, dual)
        if hasattr(step, "update"):
            return Method("paper", "transform", solver.direction, step), (0.0, dual)
        return Method("paper", "constant", solver.direction, None), (float(step), dual)

    def rounded(self) -> Any:
        """Objective and slacks with their kinks made round; None where there are none."""
        exact = (self.problem.objective_function, tuple(self.problem.slack_functions.values()))
        visits = occupancy_of(self.problem.mdp, SoftmaxTable.uniform(self.problem.mdp.actions))
        smooth = (rounded(exact[0], visits), tuple(rounded(g, visits) for g in exact[1]))
        if smooth[0] is exact[0] and all(a is b for a, b in zip(smooth[1], exact[1], strict=True)):
            return None
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), smooth)

    def go(self, pessimism: np.ndarray) -> Solution:
        """Run to the end, to the tolerance, or until interrupted."""
        solver, started = self.solver, time.perf_counter()
        with double_precision():
            compiled = core.Compiled(
                self.dynamics,
                self.problem.objective_function,
                tuple(self.problem.slack_functions.values()),
                self.family,
                self.widened(pessimism),
                pessimism,
            )
            loop = _Loop(self, compiled)
            status, certificate = loop.run()
            if not status.has_policy:
                return self._infeasible()
            solution = loop.solution(status, certificate, pessimism)
        self.seconds += time.perf_counter() - started
        stats = {**solution.stats, "seconds": self.seconds, "solver": f"PDPG ({solver.direction})"}
        return replace(solution, stats=stats)


class _Loop:
    """Chunks of compiled iterations; between them checks, progress and interruption."""

    def __init__(self, run: _Run, compiled: core.Compiled) -> None:
        self.run_, self.compiled = run, compiled
        self.solver, self.problem = run.solver, run.problem
        params = jax.tree.map(jnp.asarray, run.params)  # here, where JAX computes in float64
        multipliers = jnp.asarray(run.multipliers)
        if run.method.kind == "tuned":
            self.state: Any = core.tuned_start(compiled, params, multipliers, run.rounded())
        else:
            transform = run.method.transform
            optimiser = transform.init(params) if transform is not None else ()
            self.state = core.PaperState(params, multipliers, optimiser)
        shape = run.family.actions.shape
        self.totals: Any = (jnp.zeros(shape), jnp.zeros(run.n), jnp.zeros(shape), -jnp.inf)
        # Totals at the chunk ends from which the last half may begin, oldest first.
        self.marks: list[tuple[int, np.ndarray, np.ndarray]] = [
            (0, np.zeros(shape), np.zeros(run.n))
        ]
        self.done = 0
        self.traces: list[core.Trace] = []
        self.steps = jax.tree.map(jnp.asarray, run.steps)

    def run(self) -> tuple[Status, Certificate | None]:
        """Iterate; returns how it ended and the last certificate."""
        progress = Progress("PDPG", self.solver.iterations, self.solver.progress)
        tolerance, certificate = self.solver.tolerance, None
        # The last half begins at the end of a chunk: there are at least four of them.
        chunk = min(self.solver.check_every, -(-self.solver.iterations // 4))
        try:
            while self.done < self.solver.iterations:
                self._advance(min(chunk, self.solver.iterations - self.done))
                if tolerance is not None or progress.show:
                    certificate = self._certify()
                progress.update(self.done, self._note(certificate))
                if certificate and certificate.infeasible:
                    return Status.INFEASIBLE, certificate
                if certificate and tolerance and certificate.relative_gap <= tolerance:
                    return Status.OPTIMAL, certificate
        except KeyboardInterrupt:
            return Status.INTERRUPTED, certificate
        finally:
            progress.close()
        return Status.ITERATION_LIMIT, certificate

    def _note(self, certificate: Certificate | None) -> str:
        if certificate is None or not math.isfinite(certificate.relative_gap):
            return ""
        return f"certified gap {certificate.relative_gap:.2g}"

    def _advance(self, length: int) -> None:
        (state, totals), trace = run_chunk(
            self.compiled, self.state, self.totals, self.steps, self.run_.method, length
        )
        trace = jax.tree.map(np.asarray, trace)
        self._check_finite(trace)
        self._check_size(state.params, self.done + length)
        self.state, self.totals = state, totals
        self.traces.append(trace)
        self.done += length
        self.marks.append((self.done, np.asarray(totals[0]), np.asarray(totals[1])))
        while len(self.marks) > 2 and self.marks[1][0] <= self.done // 2:
            self.marks.pop(0)

    def _check_finite(self, trace: core.Trace) -> None:
        fine = np.isfinite(trace.objective) & np.isfinite(trace.gradient_norm)
        fine &= np.isfinite(trace.slack).all(axis=1)
        if fine.all():
            return
        first = int(np.argmin(fine))
        slack = f", the slacks {trace.slack[first]}" if self.run_.n else ""
        causes = [
            "a logarithm or barrier whose domain the iterate left (start inside it, with "
            "start=cm.slater(...).policy, and take smaller steps)",
            "a utility of your own that is infinite or has an infinite gradient there",
        ]
        if self.run_.method.kind == "paper":
            causes.insert(0, self._too_large())
        raise SolverError(
            f"iteration {self.done + first}: the objective is {trace.objective[first]}{slack}, the norm "
            f"of the gradient {trace.gradient_norm[first]}. Likely causes: {'; or '.join(causes)}."
        )

    def _check_size(self, params: Any, done: int) -> None:
        """A softmax hides a diverging run: its parameters grow, its probabilities stay finite."""
        largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(params))
        if self.run_.method.kind == "paper" and not largest < LARGEST_PARAMETER:
            raise SolverError(
                f"iteration {done}: the largest parameter is {largest:.1e}. Likely cause: {self._too_large()}."
            )

    def _too_large(self) -> str:
        return (
            f"steps that are too large, so that the run diverges (primal_step was "
            f"{self.solver.primal_step!r}; try a tenth, or primal_step='auto')"
        )

    def occupancy(self) -> tuple[np.ndarray, np.ndarray]:
        """The occupancy and the multipliers of the iterate that was asked for."""
        last = self.marks[-1]
        if self.solver.iterate == "last":
            final = evaluate(self.compiled, self.state.params)
            return np.asarray(final.occupancy), np.asarray(self.state.multipliers)
        if self.solver.iterate == "average":
            return last[1] / last[0], last[2] / last[0]
        first = self.marks[0]
        count = last[0] - first[0]
        multipliers = (last[2] - first[2]) / count
        if self.solver.iterate == "best":
            return np.asarray(self.totals[2]), multipliers
        return (last[1] - first[1]) / count, multipliers

    def _answer(self) -> tuple[Policy, dict[str, float]]:
        x, multipliers = self.occupancy()
        named = dict(zip(self.problem.constraints, (float(mu) for mu in multipliers), strict=True))
        if self.solver.iterate == "last":
            return self.run_.family.deploy(self.state.params), named
        return policy_of(self.problem.mdp, np.maximum(x, 0.0)), named

    def _certify(self) -> Certificate:
        """A proof from what is at hand: the answer's own occupancy, and the last iterate."""
        policy, multipliers = self._answer()
        x, _ = self.occupancy()
        last = evaluate(self.compiled, self.state.params)
        now = dict(zip(self.problem.constraints, np.asarray(self.state.multipliers), strict=True))
        points = [(x, multipliers), (np.asarray(last.occupancy), now)]
        return self.run_.certifier.certify(policy, None, at=points)

    def solution(
        self, status: Status, certificate: Certificate | None, pessimism: np.ndarray
    ) -> Solution:
        """The answer, from what there is."""
        if not self.done:
            raise SolverError(
                "interrupted before the first iterations were done; there is no answer"
            )
        policy, multipliers = self._answer()
        trace = core.Trace(*(np.concatenate(parts) for parts in zip(*self.traces, strict=True)))
        names = list(self.problem.constraints)
        history = {
            "objective": self.problem.sign * trace.objective,
            "slack": {name: trace.slack[:, k] + pessimism[k] for k, name in enumerate(names)},
            "multipliers": {name: trace.multipliers[:, k] for k, name in enumerate(names)},
            "gradient_norm": trace.gradient_norm,
            "primal_step": trace.primal_step,
        }
        stats: dict[str, Any] = {
            "iterations": self.done,
            "pessimism": dict(zip(names, pessimism.tolist(), strict=True)),
            "family": self.run_.family.name,
            "params": jax.tree.map(np.asarray, self.state.params),
        }
        message = _message(status, certificate, self.solver.tolerance)
        if certificate is not None:
            stats["certified_gap"] = certificate.relative_gap
        return Solution.of_policy(
            self.problem, policy, status, multipliers, history=history, stats=stats, message=message
        )


def _message(status: Status, certificate: Certificate | None, tolerance: float | None) -> str:
    known = ""
    if certificate is not None and math.isfinite(certificate.relative_gap):
        known = f" Its certified relative gap is {certificate.relative_gap:.1e}."
    if status is Status.OPTIMAL:
        return f"The certified relative gap is at most {tolerance:.0e}.{known}"
    return status.value + known


def _zero_violation(run: _Run) -> Solution:
    """pessimism="auto": the smallest value, up to a factor of 2, with a surely feasible answer."""
    names = list(run.problem.constraints)
    room = run.certifier.slater().margins if names else {}
    limit = 0.9 * np.array([max(room[name], 0.0) for name in names])
    pessimism = np.zeros(run.n)
    while True:
        solution = run.go(pessimism)
        short = _shortfall(run, solution)
        # Violated constraints ask for at least what they missed, and twice as much as last time.
        wanted = np.where(short > 0, np.maximum(2.0 * pessimism, short), pessimism)
        wanted = np.minimum(wanted, limit)
        if solution.status is Status.INTERRUPTED or (wanted <= pessimism).all():
            break
        pessimism = wanted
        run.params = solution.stats["params"]
        run.multipliers = np.array(list(solution.multipliers.values()))
    certificate = run.certifier.certify(solution.policy, None)
    if certificate.repaired and certificate.policy is not None:
        solution = _take_repaired(solution, certificate)
    bound = certificate.upper if run.problem.sign > 0 else certificate.lower
    price = run.problem.sign * (bound - solution.objective)
    proven = certificate.policy is not None
    return replace(
        solution, stats={**solution.stats, "price": price, "violation_proven_zero": proven}
    )


def _shortfall(run: _Run, solution: Solution) -> np.ndarray:
    """What each constraint surely misses at most, (n,); zeros for a surely feasible policy."""
    assert solution.policy is not None
    sure = achieved(run.certifier.claims, solution.policy.probabilities())
    return np.array([max(0.0, -sure.slack[name]) for name in run.problem.constraints])


def _take_repaired(solution: Solution, certificate: Certificate) -> Solution:
    """Where pessimism alone was not enough: the mixture with the Slater point that surely is."""
    note = f" Made feasible by a share of {certificate.repair_share:.1e} of the Slater point."
    assert certificate.policy is not None
    return Solution.of_policy(
        solution.problem,
        certificate.policy,
        solution.status,
        solution.multipliers,
        history=solution.history,
        stats={**solution.stats, "repair_share": certificate.repair_share},
        message=solution.message + note,
    )
