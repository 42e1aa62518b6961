"""``ModelBased`` at work: rounds of episodes, and a new plan whenever the counts have grown by a factor of
1.4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvxmdp.algorithms.optimism import explorer, meeting, optimist
from cvxmdp.base.errors import PolicyError, ProblemError
from cvxmdp.base.interval import Interval
from cvxmdp.certificates.certify import certify
from cvxmdp.experience.environments.environment import environment_of
from cvxmdp.experience.episodes import Sample
from cvxmdp.experience.judging import Play, in_rounds, judge_by_episodes, measured_mean
from cvxmdp.experience.tallies import Tally
from cvxmdp.models.estimate import estimated_model
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.by_name import written_policy
from cvxmdp.policies.observers import on_observations
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.policies.tables import table_of
from cvxmdp.problems.findings import computed, unjudged
from cvxmdp.problems.problem import Evaluation, Problem
from cvxmdp.problems.solution import Solution, Status
from cvxmdp.problems.while_learning import played_history, violations_while_learning
from cvxmdp.solvers.contract import Judgement, Rows, Task, Work
from cvxmdp.solvers.counted_plans import CountedPlan, careful_plan, counted_plan
from cvxmdp.solvers.playing import EnvironmentGround, episode_length, playground
from cvxmdp.solvers.start import given_start

if TYPE_CHECKING:
    from cvxmdp.solvers.model_based import ModelBased

GROWTH = 1.4  # of the counts from plan to plan
LATELY = 50  # steps since the last look, times this, that are as many as all make the explorer look again
FIRST_SHARE = 500  # the first plan comes after this part of the steps
LEAST_FIRST = 200  # and not before so many
HOPING = 1 / 3  # the optimist's share of what the explorer leaves
LEAST_EXPLORING, MORE_EXPLORING = 0.1, 0.6  # the explorer's share is the first + the second * u
TRACE = 1e-9  # probability of an action that nobody means
LEARNING, EVALUATING = 0, 1  # what random numbers are for


class Counted(NamedTuple):
    """The state between two rounds.

    Attributes:
        steps, rounds: played so far.
        until: the steps at which the next plan is made.
        tally: what was counted.
        tables: plan, optimist and explorer, (3, S, A).
        shares: of the episodes that each plays, (3,).
        episodes: since the last plan.
        measured: the sum of their occupancies; empty where those of policies are known.
    """

    steps: Any
    rounds: Any
    until: Any
    tally: Tally
    tables: np.ndarray
    shares: np.ndarray
    episodes: Any
    measured: np.ndarray


class ModelBasedWork(Work[Counted]):
    """See ``solvers.model_based``."""

    name = "ModelBased"
    renews = True  # whether the explorer looks again between plans

    def __init__(self, solver: ModelBased, task: Task) -> None:
        assert task.seed is not None
        self.solver, self.problem, self.seed = solver, task.problem, int(task.seed)
        self.ground = playground(task.problem, solver.steps, self.seed)
        self.horizon = episode_length(task.problem.space.horizon)
        self.start = self._first_policy(given_start(task.problem, task.start))

    def _first_policy(self, start: Any) -> np.ndarray | None:
        """The probabilities of a policy to begin with, (S, A)."""
        if start is None:
            return None
        if self.problem.environment is None:
            return without_traces(as_policy(self.problem.mdp, start).probabilities())
        given = getattr(start, "policy", start)
        table = table_of(given)
        if table is None and (isinstance(given, Mapping) or callable(given)):
            table = written_policy(self.problem.space, given).probabilities()
        found = TabularPolicy(given).probabilities() if table is None else table
        expected = self.ground.counter.available.shape
        if found.shape != expected:
            raise PolicyError(
                f"start is a policy for {found.shape} states and actions; there are {expected} here"
            )
        return without_traces(found)

    def first(self) -> Counted:
        uniform = self.ground.counter.available.astype(np.float64)
        uniform /= uniform.sum(axis=1, keepdims=True)
        tables, shares = self.first_policies(uniform)
        return Counted(
            np.array(0),
            np.array(0),
            np.array(max(LEAST_FIRST, self.solver.steps // FIRST_SHARE)),
            self.ground.counter.nothing(),
            tables,
            shares,
            np.array(0),
            np.zeros(self.problem.shape if environment_of(self.problem) else (0, 0)),
        )

    def first_policies(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is played before the first plan."""
        if self.start is None:
            return np.stack([uniform] * 3), np.array([0.0, 0.0, 1.0])
        return np.stack([self.start, self.start, uniform]), np.array([0.5, 0.0, 0.5])

    def where(self, state: Counted) -> tuple[int, int]:
        # What is left of the steps may be too little for one step in every lane.
        total, done = self.solver.steps, int(state.steps)
        return (total if total - done < self.ground.lanes else done), total

    def advance(self, state: Counted, until: int) -> tuple[Counted, Rows]:
        """Rounds until so many steps are played, with the plans that fall due."""
        rows: list[dict[str, np.ndarray]] = []
        while True:
            if int(state.steps) >= int(state.until):
                rows.append(self.phase(state))
                state = self.planned(state)
            elif self.renews and int(state.steps) and self.much_is_new(state.tally):
                state = self.curious(state)
            state = self.round(state)
            done, total = self.where(state)
            if done >= min(until, total):
                break
        if not rows:
            return state, {}
        return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    @staticmethod
    def much_is_new(tally: Tally) -> bool:
        """Whether so much was seen since the last look that another one is worth the time."""
        return LATELY * tally.fresh.size >= tally.times.sum()

    def round(self, state: Counted) -> Counted:
        """One episode in every lane."""
        lanes, left = self.ground.lanes, self.solver.steps - int(state.steps)
        horizon = max(1, min(self.horizon, left // lanes))
        episodes = self.ground.play(
            state.tables, state.shares, horizon, LEARNING, int(state.rounds)
        )
        return state._replace(
            steps=state.steps + int(episodes.lengths.sum()),
            rounds=state.rounds + 1,
            tally=self.ground.add(state.tally, episodes),
            episodes=state.episodes + lanes,
            measured=state.measured + self.ground.measured(episodes),
        )

    def phase(self, state: Counted) -> dict[str, np.ndarray]:
        """A record of what was played since the last plan."""
        measured = state.measured / max(int(state.episodes), 1)
        return {
            "at": np.array(int(state.steps)),
            "episodes": np.array(int(state.episodes)),
            "explorer": np.array(state.shares[2]),
            "visits": self.ground.visits(state.tables, state.shares, measured),
            "plan": state.tables[0],
        }

    def estimate(self, tally: Tally) -> TabularMDP:
        """The model that was counted so far."""
        counts, space = self.ground.counter.counts(tally), self.problem.space
        return estimated_model(
            counts,
            space.discount,
            known=self.ground.known,
            state_names=space.state_names,
            action_names=space.action_names,
            note=f"estimated model ({'; '.join(counts.treatment)})",
        )

    def planned(self, state: Counted) -> Counted:
        """New policies for what is known by now."""
        tally = state.tally.merged()
        return self.policies(self.estimate(tally), state)._replace(
            until=np.array(math.ceil(GROWTH * int(state.steps))),
            tally=tally,
            episodes=np.array(0),
            measured=np.zeros_like(state.measured),
        )

    def policies(self, model: TabularMDP, state: Counted) -> Counted:
        """The state with the policies that the model suggests."""
        plan = counted_plan(self.problem.with_model(model))
        hopeful = optimist(model, plan.reward, plan.policy)
        curious = explorer(model, self.horizon)
        return state._replace(
            tables=np.stack([plan.policy, np.eye(model.n_actions)[hopeful], curious]),
            shares=shares_of(meeting(model, self.horizon)),
        )

    def curious(self, state: Counted) -> Counted:
        """A new explorer alone: what it looked for is often found within an episode."""
        tally = state.tally.merged()
        model = self.estimate(tally)
        tables = np.stack([*state.tables[:2], explorer(model, self.horizon)])
        begun = state.shares[1] > 0  # with a first plan; before it, only the explorer learns
        shares = shares_of(meeting(model, self.horizon)) if begun else state.shares
        return state._replace(tally=tally, tables=tables, shares=shares)

    def judge(self, state: Counted) -> Judgement:
        return Judgement(f"{int(state.rounds):,} rounds")

    def finish(self, state: Counted, rows: Rows, status: Status) -> Solution:
        """The best plan that keeps each slack at one standard error, on all that was counted."""
        if not int(state.steps):
            message = f"{status.value} Nothing is known before the first episode."
            return Solution.without_policy(self.problem, status, message=message)
        tally = state.tally.merged()
        model = self.estimate(tally)
        asked = self.problem.with_model(model)
        plan, errors = self.answer(asked)
        policy = TabularPolicy(plan.policy)
        worst = self.worst(asked, policy, tally)
        evaluation, judged, more, remark = self.evaluated(policy, status, int(state.steps), worst)
        proof, said = self.proven(asked, policy, status)
        environment = environment_of(self.problem)
        history = self.history(state, rows)
        played = f"{int(state.steps):,} steps were played."
        ended = played if status is Status.ITERATION_LIMIT else f"{status.value} {played}"
        stats = {
            "solver": "ModelBased",
            "iterations": int(state.rounds),
            "samples": int(state.steps),
            "standard_error": errors,
            "model": model,
            **({"start": "probabilities of the policy"} if self.start is not None else {}),
            **violations_while_learning(self.problem, history, history["episodes"]),
            **more,
            **proof,
        }
        return Solution.of_policy(
            self.problem,
            policy if environment is None else on_observations(policy, environment),
            status,
            plan.multipliers,
            evaluation=evaluation,
            history=history,
            stats=stats,
            message=f"{ended}{remark}{said}",
            slack_interval=judged,
        )

    def answer(self, asked: Problem) -> tuple[CountedPlan, dict[str, float]]:
        """The plan that is returned, and the standard errors of its slacks."""
        return careful_plan(asked)

    def proven(
        self, asked: Problem, policy: TabularPolicy, status: Status
    ) -> tuple[dict[str, Any], str]:
        """What is proven about the true model, for statistics and in words."""
        if status is not Status.ITERATION_LIMIT:
            return {}, ""
        if not self.ground.markov:
            return {}, (
                " Bins of observations are not Markov, so that nothing is proven from counts of them: "
                "evaluate(solution, environment, episodes) bounds what this policy is worth."
            )
        try:
            certificate = certify(asked, policy, confidence=self.solver.confidence)
        except (PolicyError, ProblemError) as error:
            return {}, f" Of this run: {error}."
        found = {
            "certificate": certificate,
            "true_bound": certificate.bound,
            "true_objective": certificate.reaches,
            "true_slack": dict(certificate.slack),
        }
        return found, f"\n{certificate}"

    def history(self, state: Counted, rows: Rows) -> dict[str, Any]:
        """What was played from plan to plan, and what the plans were worth where that is known exactly."""
        last = self.phase(state)
        every = {
            name: np.concatenate([rows[name], one[None]]) if rows else one[None]
            for name, one in last.items()
        }
        found: dict[str, Any] = {"recorded": every["at"]}
        found |= {name: every[name] for name in ("explorer", "episodes")}
        found |= played_history(self.problem, every["at"], every["visits"])
        if self.problem.environment is None:
            plans = [self.problem.evaluate(plan) for plan in every["plan"]]
            names = self.problem.constraints
            found["iteration"] = every["at"]
            found["objective"] = np.array([one.objective for one in plans])
            found["slack"] = {name: np.array([one.slack[name] for one in plans]) for name in names}
        return found

    def worst(self, asked: Problem, policy: TabularPolicy, tally: Tally) -> dict[str, float]:
        """The slacks of an episode with one step as bad as any that was counted where the policy goes.

        Fresh episodes of a rare cost may show none: what was seen of it while counting may happen again.
        """
        if environment_of(self.problem) is None:
            return {}
        visited = asked.mdp.flow.occupancy(policy.probabilities()).ravel() > 0
        swings, slack = tally.swings(visited), asked.evaluate(policy).slack
        found, rows = {}, len(self.ground.counter.signals)
        for name, function in self.problem.slack_functions.items():
            affine = function.affine()
            if affine is not None and rows:
                slopes = np.asarray(affine.reward)[-rows:, 0]
                found[name] = slack[name] - float(
                    np.maximum(slopes * swings[0], -slopes * swings[1]).sum()
                )
        return found

    def evaluated(
        self, policy: TabularPolicy, status: Status, steps: int, worst: Mapping[str, float]
    ) -> tuple[Evaluation, dict[str, Interval], dict[str, Any], str]:
        """What the answer is worth: exactly, or by fresh episodes; and what to say of that."""
        if environment_of(self.problem) is None:
            found = self.problem.evaluate(policy)
            return found, computed(found.slack), {}, ""
        if status is not Status.ITERATION_LIMIT:  # the environment is not to be asked again
            unknown = Evaluation.unknown(self.problem)
            return unknown, unjudged(unknown.slack), {}, ""
        judged = judge_by_episodes(self.problem, self.fresh(policy), most_steps=steps, worst=worst)
        sample, stats = judged.sample, {"evaluation_episodes": judged.sample.n}
        remark = (
            f" Objective and slack are estimates from {sample.n:,} fresh episodes; bounds on them: "
            "evaluate(solution, environment, episodes)."
        )
        found = self.problem.evaluate_occupancy(measured_mean(self.problem, sample))
        return found, judged.slack, stats, remark

    def fresh(self, policy: TabularPolicy) -> Play:
        """Episodes of a policy that nothing was learned from."""
        ground = self.ground
        assert isinstance(ground, EnvironmentGround)
        tables, one = policy.probabilities()[None], np.ones(1)
        horizon = ground.environment.default_horizon()

        def block(number: int) -> Sample:
            return ground.sampled(ground.play(tables, one, horizon, EVALUATING, number))

        return in_rounds(block, ground.lanes)


def without_traces(policy: np.ndarray) -> np.ndarray:
    """A policy without probabilities that are a solver's rounding: what is hardly ever tried is not known."""
    kept = np.where(policy > TRACE, policy, 0.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def shares_of(unknown: float) -> np.ndarray:
    """Of the episodes that plan, optimist and explorer play; ``unknown`` is how likely it is met."""
    share = LEAST_EXPLORING + MORE_EXPLORING * unknown
    return np.array([(1.0 - HOPING) * (1.0 - share), HOPING * (1.0 - share), share])
