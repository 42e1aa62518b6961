"""Queries of Storm: own programs against its exact engine, published answers, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError, ModelError, ProblemError

stormpy = pytest.importorskip("stormpy")
PUBLISHED = Path(__file__).parent / "qvbs"

# A courier: the short road may break the car, the long one costs more; in the yard one can wait for ever.
COURIER = """mdp
const int LIMIT;
module courier
  at : [0..5] init 0;  // 0 depot, 1 short road, 2 long road, 3 customer, 4 broken, 5 yard
  parcels : [0..LIMIT] init 0;
  [short] at=0 -> 0.7:(at'=3) + 0.2:(at'=1) + 0.1:(at'=4);
  [long] at=0 -> 0.9:(at'=3) + 0.1:(at'=2);
  [rest] at=0 -> (at'=5);
  [on] at=1 -> 0.5:(at'=3) + 0.5:(at'=4);
  [on] at=2 -> (at'=3);
  [wait] at=5 -> (at'=5);
  [go] at=5 -> 0.6:(at'=0) + 0.4:(at'=5);
  [back] at=3 & parcels<LIMIT -> (at'=0) & (parcels'=parcels+1);
  [done] at=3 & parcels=LIMIT -> true;
  [done] at=4 -> true;
endmodule
rewards "fuel" [short] true : 1; [long] true : 3; [on] true : 0.5; endrewards
rewards "paid" [back] true : 5; at=4 : 0; endrewards
rewards "tolls" [short] true : 1; [long] true : 2; endrewards
label "home" = at=3 & parcels=LIMIT;
label "broken" = at=4;
"""

QUERIES = [
    'Pmax=? [F "home"]',
    'Pmin=? [F "home"]',
    'Pmax=? [G !"broken"]',
    "Pmin=? [G at<4]",
    'Pmax=? [at!=1 U "home"]',
    'Pmax=? [F<=4 "home"]',
    'Pmin=? [at!=5 U<=6 "broken"]',
    'Pmax=? [F<5 "broken"]',
    'Pmax=? [F{"tolls"}<=3 "home"]',
    'Pmin=? [F{"tolls"}<4 "broken"]',
    'Pmax=? [at!=5 U{"tolls"}<=2 "home"]',
    "Pmax=? [G F at=5]",
    "Pmin=? [G F at=5]",
    'R{"fuel"}min=? [F "home" | "broken"]',  # the yard must be left
    'R{"fuel"}max=? [C]',
    'R{"paid"}max=? [C<=5]',
    'R{"fuel"}min=? [C<=3]',
    'Pmax=? [F "init"]',
]
SEVERAL = [
    'multi(Pmax=? [F "home"], R{"fuel"}<=2.5 [C])',
    'multi(R{"paid"}max=? [C], P<=0.15 [F "broken"], R{"fuel"}<=4 [C])',
    'multi(Pmin=? [F "broken"], P>=0.5 [F "home"], P>=0.25 [F at=5])',
    'multi(R{"fuel"}min=? [C], P>=0.7 [at!=1 U "home"])',
    'multi(R{"paid"}max=? [C<=4], R{"fuel"}<=2 [C<=2])',
    'multi(P>=0.99 [F "home"], P>=0.6 [F at=1])',
    'multi(Pmax=? [F{"tolls"}<=3 "home"], P<=0.2 [F<=3 "broken"])',
]


# Mud costs, and one can stay in it or walk round it for ever: only the budget keeps policies from that.
MAZE = """mdp
module maze
  x : [0..3] init 0;
  y : [0..3] init 0;
  [n] y<3 -> 0.8:(y'=y+1) + 0.1:(x'=min(3,x+1)) + 0.1:(x'=max(0,x-1));
  [e] x<3 -> 0.8:(x'=x+1) + 0.1:(y'=min(3,y+1)) + 0.1:(y'=max(0,y-1));
  [s] y>0 -> 0.8:(y'=y-1) + 0.2:true;
  [stay] true -> true;
endmodule
rewards "steps" [n] true : 1; [e] true : 1; [s] true : 1; endrewards
rewards "mud" x=1&y=1 | x=2&y=1 | x=1&y=2 : 1; endrewards
label "goal" = x=3 & y=3;
label "pit" = x=2 & y=2;
"""
IN_MAZE = [
    'multi(Pmax=? [F "goal"], R{"mud"}<=0.2 [C])',
    'multi(Pmax=? [F "goal"], R{"steps"}<=5 [C], P<=0.1 [F "pit"])',
    'Pmax=? [!"pit" U "goal"]',
]


# Two places of the swamp can be crossed for ever at the price of wet feet; a drone can charge again and again.
SWAMP = """mdp
module swamp
  s : [0..6] init 0;
  [walk] s=0 -> 0.5:(s'=1) + 0.5:(s'=2);
  [walk] s=1 -> 0.9:(s'=3) + 0.1:(s'=0);
  [walk] s=2 -> 0.4:(s'=3) + 0.6:(s'=4);
  [round] s=3 -> 0.5:(s'=4) + 0.5:(s'=3);
  [round] s=4 -> 0.3:(s'=3) + 0.7:(s'=4);
  [out] s=3 -> 0.6:(s'=5) + 0.4:(s'=6);
  [out] s=4 -> 0.2:(s'=5) + 0.8:(s'=0);
  [climb] s=6 -> 0.1:(s'=5) + 0.9:(s'=6);
  [end] s=5 -> true;
endmodule
rewards "coins" [walk] true : 1; endrewards
rewards "wet" s=3 | s=4 : 1; [climb] true : 0.5; endrewards
rewards "tired" [climb] true : 1; [out] true : 2; endrewards
label "dry" = s=5;
label "pit" = s=6;
"""
IN_SWAMP = [
    'multi(R{"wet"}min=? [F "dry"], R{"tired"}<=2 [F "dry"])',
    'multi(R{"wet"}min=? [F "dry"], R{"coins"}<=0.9 [F "dry"])',
    'multi(R{"coins"}min=? [F "dry"], R{"wet"}<=1 [F "dry"])',
    'multi(R{"tired"}min=? [F "dry"], R{"wet"}<=1 [F "dry"], P<=0.1 [F "pit"])',
    'multi(R{"tired"}<=2 [F "dry"])',
]
DRONE = """mdp
module drone
  pos : [0..4] init 0;
  bat : [0..4] init 4;
  charging : bool init false;
  crashed : bool init false;
  [fly] !crashed & !charging & bat>0 & pos<4 -> 0.85:(pos'=pos+1)&(bat'=bat-1) + 0.1:(bat'=bat-1)
    + 0.05:(crashed'=true);
  [dock] !crashed & !charging & pos=2 -> (charging'=true);
  [charge] charging & bat<4 -> 0.5:(bat'=min(4,bat+2)) + 0.5:(bat'=min(4,bat+1));
  [undock] charging -> (charging'=false);
  [hover] !crashed & !charging & bat>0 -> (bat'=bat-1);
  [end] crashed | (bat=0 & !charging) | pos=4 -> true;
endmodule
rewards "energy" [fly] true : 1; [hover] true : 1; endrewards
label "there" = pos=4;
label "crashed" = crashed;
"""
OF_DRONE = [
    'multi(Pmax=? [F<=8 "there"], R{"energy"}<=6 [C])',  # a budget that does not bind, and must end walks
    'multi(R{"energy"}min=? [C], P>=0.6 [F "there"], P<=0.25 [F "crashed"])',
]


@pytest.fixture(scope="module")
def courier(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "courier.nm"
    path.write_text(COURIER)
    return path


def by_storm(path, text, constants):
    """Storm's own exact answer, or None where its bounds cannot be satisfied."""
    program = stormpy.parse_prism_program(path)
    asked = stormpy.parse_properties(text, program)
    program, asked = stormpy.instantiate_constants(program, constants, asked)
    model = stormpy.build_model[stormpy.Rational](program, asked)
    environment = stormpy.environments.exact()
    environment.modelchecker().multi().precision = stormpy.Rational("1/1000000000000")
    found = stormpy.model_checking(
        model, asked[0], only_initial_states=True, environment=environment
    )
    first = next(iter(model.initial_states))
    return float(Fraction(str(found.get_value(first)))) if found.is_quantitative() else None


@pytest.mark.parametrize("text", IN_MAZE)
def test_walks_that_only_a_budget_ends(tmp_path, text):
    path = tmp_path / "maze.nm"
    path.write_text(MAZE)
    against_storm(path, text, {})


@pytest.mark.parametrize("text", IN_SWAMP)
def test_goals_that_cost_more_than_any_budget_are_proven_to(tmp_path, text):
    """Where a part can be crossed for nothing, rounding there must not hide that."""
    path = tmp_path / "swamp.nm"
    path.write_text(SWAMP)
    problem = cm.from_storm(path, text)
    solution = cm.solve(problem)
    assert solution.status is cm.Status.INFEASIBLE
    certificate = cm.certify(problem, solution)
    assert certificate.infeasible
    assert cm.check(certificate, problem).accepted
    assert cm.check(certificate, problem, exact=True).accepted


@pytest.mark.parametrize("text", OF_DRONE)
def test_budgets_that_end_walks_without_binding(tmp_path, text):
    path = tmp_path / "drone.nm"
    path.write_text(DRONE)
    against_storm(path, text, {})


def test_a_front_whose_budget_ends_walks(tmp_path):
    path = tmp_path / "drone.nm"
    path.write_text(DRONE)
    text = 'multi(Pmax=? [F "there"], Pmin=? [F "crashed"], R{"energy"}<=5 [C])'
    front = cm.pareto(*cm.from_storm(path, text), tolerance=1e-6)
    for weights in ([1.0, 0.0], [0.5, 0.5]):
        assert front.upper(weights) - front.lower(weights) <= 1e-5
    alone = by_storm(path, 'multi(Pmax=? [F "there"], R{"energy"}<=5 [C])', {})
    assert front.lower([1.0, 0.0]) == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("text", QUERIES + SEVERAL)
def test_own_programs_against_storm(courier, text):
    against_storm(courier, text, {"LIMIT": 1})


def against_storm(path, text, constants):
    problem = cm.from_storm(path, text, constants)
    solution = cm.solve(problem)
    wanted = by_storm(path, text, constants)
    if wanted is None:
        assert solution.status is cm.Status.INFEASIBLE
        return
    assert solution.status is cm.Status.OPTIMAL
    assert solution.objective == pytest.approx(wanted, abs=1e-9)
    certificate = cm.certify(problem, solution)
    assert certificate.lower - 1e-12 <= wanted <= certificate.upper + 1e-12
    assert certificate.gap <= 1e-7


def test_several_questions_are_a_front(courier):
    text = 'multi(Pmax=? [F "home"], R{"fuel"}min=? [C])'
    front = cm.pareto(*cm.from_storm(courier, text, "LIMIT=0"), tolerance=1e-6)
    # Nothing done costs nothing; the short road reaches home with 0.8; the long one surely, for 3.05.
    corners = sorted(front.points.tolist())
    np.testing.assert_allclose(corners, [[0, 0], [0.8, -1.1], [1, -3.05]], atol=1e-6)


MACHINE = """mdp
module machine
  wear : [0..3] init 0;
  [fast] wear<3 -> 0.6:(wear'=wear+1) + 0.4:true;
  [slow] wear<3 -> 0.2:(wear'=wear+1) + 0.8:true;
  [repair] wear>0 -> 0.7:(wear'=0) + 0.3:true;
endmodule
rewards "made" [fast] true : 3; [slow] true : 1; endrewards
"""


@pytest.mark.parametrize(
    "text", ['R{"made"}max=? [LRA]', "LRAmin=? [wear=0]", "LRAmax=? [wear=1 | wear=2]"]
)
def test_long_run_averages(tmp_path, text):
    path = tmp_path / "machine.nm"
    path.write_text(MACHINE)
    problem = cm.from_storm(path, text)
    found = cm.certify(problem, cm.solve(problem))
    wanted = by_storm(path, text, {})
    assert found.lower - 1e-12 <= wanted <= found.upper + 1e-12
    assert found.gap <= 1e-8


def test_a_front_of_long_run_averages(tmp_path):
    path = tmp_path / "machine.nm"
    path.write_text(MACHINE)
    text = 'multi(R{"made"}max=? [LRA], LRAmin=? [wear=3])'
    front = cm.pareto(*cm.from_storm(path, text), tolerance=1e-6)
    assert front.lower([1.0, 0.0]) == pytest.approx(by_storm(path, 'R{"made"}max=? [LRA]', {}))
    assert front.upper([0.0, 1.0]) == pytest.approx(0.0, abs=1e-9)  # repaired in time


def test_models_and_lists(courier, tmp_path):
    mdp = cm.from_storm(courier, constants={"LIMIT": 2})
    assert mdp.n_states == 18
    assert {"fuel", "paid", "home", "broken"} <= set(mdp.signals)
    both = cm.from_storm(courier, QUERIES[:2], {"LIMIT": 1})
    for one, text in zip(both, QUERIES, strict=False):
        assert cm.solve(one).objective == pytest.approx(by_storm(courier, text, {"LIMIT": 1}))
    mdp.replace(discount=0.9).to_umb(tmp_path / "courier.umb")
    again = cm.from_storm(tmp_path / "courier.umb", 'R{"fuel"}max=? [C]')
    wanted = by_storm(courier, 'R{"fuel"}max=? [C]', {"LIMIT": 2})
    assert cm.solve(again).objective == pytest.approx(wanted, abs=1e-9)


def test_a_program_without_a_type_and_rewards_without_a_name(courier, tmp_path):
    path = tmp_path / "untyped.nm"
    path.write_text(COURIER.replace("mdp\n", "// what PRISM takes for an MDP\n", 1))
    found = cm.solve(cm.from_storm(path, "Rmax=? [C]", {"LIMIT": 1})).objective
    wanted = by_storm(courier, 'R{"fuel"}max=? [C]', {"LIMIT": 1})
    assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('R{"fuel"}max=? [F "home"]', "is infinite: some policy never reaches the goal"),
        ('Pmax=? [F "home" & P>=1 [F "broken"]]', "inside another operator is outside"),
        ('Pmax=? [F>=3 "home"]', "the bound of"),
        ('Pmax=? [F{"tolls"}>=3 "home"]', "the bound of"),
        ('Pmax=? [F{"fuel"}<=3 "home"]', "rewards that are not 0, 1, 2"),
        ('Pmax=? [X "home"]', "is outside. from_storm takes"),
        ('P>=0.5 [F "home"]', "asks about every policy"),
        ('multi(R{"fuel"}min=? [C], LRAmax=? [at=5])', "long-run averages beside sums"),
    ],
)
def test_what_is_outside(courier, text, words):
    with pytest.raises(ProblemError, match=words.replace("?", r"\?")):
        cm.from_storm(courier, text, {"LIMIT": 1})


def test_bad_files(courier, tmp_path):
    with pytest.raises(FileFormatError, match="Storm says"):
        cm.from_storm(courier, 'Pmax=? [F "home"]')  # LIMIT is not given
    chain = tmp_path / "rates.sm"
    chain.write_text("ctmc\nmodule m\n x:[0..1] init 0;\n <> x=0 -> 2:(x'=1);\nendmodule\n")
    with pytest.raises(FileFormatError, match="CTMC; expected one of MDP, DTMC"):
        cm.from_storm(chain)
    stuck = tmp_path / "stuck.nm"
    stuck.write_text(
        "mdp\nmodule m\n x:[0..2] init 0;\n [] x=0 -> 0.5:(x'=1)+0.5:(x'=2);\n [] x>0 -> true;\nendmodule\n"
        "rewards true:1; endrewards\n"
    )
    with pytest.raises(ModelError, match="no policy surely reaches the goal"):
        cm.from_storm(stuck, "Rmin=? [F x=1]")


def published():
    for path in sorted(PUBLISHED.glob("*.json")):
        for name, value in json.loads(path.read_text())["results"].items():
            yield pytest.param(path, name, value, id=f"{path.stem}-{name}")


@pytest.mark.parametrize(("path", "name", "value"), list(published()))
def test_published_answers(path, name, value):
    """Models of the Quantitative Verification Benchmark Set (CC BY 4.0, beside them) with its answers."""
    facts = json.loads(path.read_text())
    problem = cm.from_storm(
        PUBLISHED / facts["file"], facts["properties"][name], facts["constants"]
    )
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.relative_gap <= 1e-6
    wanted = float(Fraction(value))
    assert certificate.lower * (1 - 1e-9) <= wanted <= certificate.upper * (1 + 1e-9)
