"""UMB archives: there and back, read by Storm, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError, ModelError
from cvxmdp.models.importers.umb import _pointers
from strategies import generator, random_model

umb = pytest.importorskip("umbi.umb")


def test_there_and_back(tmp_path) -> None:
    for seed in range(4):
        mdp = random_model(
            generator(seed), n_states=5, n_actions=3, discount=0.9, endings=seed % 2 == 0, mask=True
        ).replace(initial=2)
        mdp.to_umb(tmp_path / "model.umb")
        end = "end" if mdp.ending.any() else None
        read = cm.from_umb(tmp_path / "model.umb", 0.9, end=end)
        np.testing.assert_array_equal(read.actions, mdp.actions)
        np.testing.assert_array_equal(read.dense_transition(), mdp.dense_transition())
        np.testing.assert_array_equal(read.initial, mdp.initial)
        assert set(read.signals) == set(mdp.signals)
        for name in mdp.signals:
            np.testing.assert_array_equal(
                read.signal(name)[mdp.actions], mdp.signal(name)[mdp.actions]
            )


def test_names_of_any_kind(tmp_path) -> None:
    mdp = cm.garnet(3, 2, 2, seed=0).replace(initial=0, action_names=["go left", "Ω/2"])
    mdp = mdp.with_signals(**{"Kosten / Tag": np.ones((3, 2))})
    mdp.to_umb(tmp_path / "model.umb")
    read = cm.from_umb(tmp_path / "model.umb", 0.9)
    assert read.action_names == ("go left", "Ω/2")
    assert "Kosten / Tag" in read.signals


def test_storm_reads_it(tmp_path) -> None:
    stormpy = pytest.importorskip("stormpy")
    mdp = cm.garnet(8, 2, 3, seed=5, ending=0.1).replace(initial=0)
    mdp.to_umb(tmp_path / "model.umb")
    read = stormpy.build_model_from_umb(tmp_path / "model.umb")
    assert (read.nr_states, read.nr_choices) == (9, 17)
    assert set(read.reward_models) == {"reward", "cost"}
    asked = stormpy.parse_properties('R{"reward"}max=? [F "end"]')[0]
    values = np.zeros(8)
    for _ in range(800):
        values = (mdp.signal("reward") + mdp.dense_transition() @ values).max(axis=1)
    found = stormpy.model_checking(read, asked).get_value(0)
    assert found == pytest.approx(values[0], rel=1e-5)


PROGRAM = """mdp
module walk
  place : [0..2] init 0;
  [toss] place=0 -> 0.25:(place'=1) + 0.75:(place'=2);
  [] place=0 -> (place'=0);
  [] place>0 -> (place'=place);
endmodule
rewards "pay" place=0 : 1; [toss] true : 2; endrewards
rewards "time" true : 1; endrewards
label "won" = place=1;
"""


def test_what_storm_writes(tmp_path) -> None:
    stormpy = pytest.importorskip("stormpy")
    (tmp_path / "walk.nm").write_text(PROGRAM)
    program = stormpy.parse_prism_program(tmp_path / "walk.nm")
    built = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
    stormpy.io.export_to_umb(built, str(tmp_path / "walk.umb"))
    mdp = cm.from_umb(tmp_path / "walk.umb", 0.9)
    assert mdp.state_names == ("place=0", "place=1", "place=2")
    assert set(mdp.signals) == {"pay", "time", "won"}  # more than one reward survives
    toss = mdp.action_names.index("toss")
    np.testing.assert_array_equal(mdp.dense_transition()[0, toss], [0, 0.25, 0.75])
    assert mdp.signal("pay")[0, toss] == 3.0
    assert mdp.signal("won").max(axis=1).tolist() == [0, 1, 0]


def archive(**changes):
    """Two states: 0 goes to either, 1 stays; a reward of every kind under one name."""
    from fractions import Fraction

    from umbi.binary import SizedType
    from umbi.datatypes import NumericPrimitiveType, PrimitiveType

    exact = SizedType.for_type(NumericPrimitiveType.RATIONAL)
    double = SizedType.for_type(NumericPrimitiveType.DOUBLE)
    made = umb.ExplicitUmb()
    settings = {"num_players": 1, "num_initial_states": 1, "time": "discrete", **changes}
    made.index.transition_system = umb.index.TransitionSystem(
        num_states=2, num_choices=2, num_branches=3, branch_probability_type=exact, **settings
    )
    made.state_is_initial = [settings["num_initial_states"] > 0, False]
    made.state_to_choices, made.choice_to_branches = [0, 1, 2], [0, 2, 3]
    made.branch_to_target = [0, 1, 1]
    made.branch_to_probability = [Fraction(1, 4), Fraction(3, 4), Fraction(1)]
    parts = {"states": [1.0, 0.0], "choices": [10.0, 0.0], "branches": [4.0, 8.0, 0.0]}
    described = umb.index.AnnotationDescription
    bit = SizedType.for_type(PrimitiveType.BOOL)
    made.index.annotations = {
        "rewards": {"pay": described(applies_to=list(parts), type=double)},
        "aps": {
            "done": described(applies_to=["states"], type=bit),
            "odd": described(applies_to=["states"], type=bit),
        },
    }
    states = {"done": {"states": [False, True]}, "odd": {"states": [False, True]}}
    made.annotations = {"rewards": {"pay": parts}, "aps": states}
    return made


def test_rationals_and_rewards_of_every_kind(tmp_path) -> None:
    umb.write(archive(), tmp_path / "model.umb")
    read = cm.from_umb(tmp_path / "model.umb", 0.5)
    np.testing.assert_array_equal(read.dense_transition()[:, 0], [[0.25, 0.75], [0, 1]])
    np.testing.assert_array_equal(read.signal("pay")[:, 0], [1 + 10 + 0.25 * 4 + 0.75 * 8, 0])
    np.testing.assert_array_equal(read.signal("odd")[:, 0], [0, 1])
    ended = cm.from_umb(tmp_path / "model.umb", 0.5, end="done")
    assert ended.n_states == 1
    assert ended.ending[0, 0] == 0.75


def test_what_is_refused(tmp_path) -> None:
    path = tmp_path / "model.umb"
    path.write_bytes(b"not a tar")
    with pytest.raises(FileFormatError, match="is not a UMB archive"):
        cm.from_umb(path, 0.9)
    umb.write(archive(num_initial_states=0), path)
    with pytest.raises(FileFormatError, match="no initial state"):
        cm.from_umb(path, 0.9)
    umb.write(archive(num_players=2, player_to_name=["max", "min"]), path)
    with pytest.raises(FileFormatError, match="2 players; expected a Markov decision process"):
        cm.from_umb(path, 0.9)
    umb.write(archive(), path)
    with pytest.raises(FileFormatError, match=r"label 'dome'.*Did you mean 'done'"):
        cm.from_umb(path, 0.9, end="dome")
    with pytest.raises(ModelError, match="not uniform"):
        cm.garnet(3, 2, 2, seed=0).replace(initial=[0.5, 0.3, 0.2]).to_umb(path)
    with pytest.raises(FileNotFoundError):
        cm.from_umb(tmp_path / "missing.umb", 0.9)


@pytest.mark.parametrize("given", [[0, 1, 2], [0, 2], [1, 2, 3], [0, 4, 3], [0, 1, 3, 3], None])
def test_lists_that_leave_choices_out_are_refused(given: list[int] | None) -> None:
    """Two states with three choices: what broken files said instead."""
    with pytest.raises(cm.CvxmdpError, match="do not fit each other"):
        _pointers(given, 2, 3, "broken.umb")
