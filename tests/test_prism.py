"""PRISM's explicit files: the manual's own forms, there and back, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError, ModelError
from strategies import generator, random_model, seeds

TRA = "4 5 7\n0 0 1 1\n1 0 2 0.5 x\n1 0 3 0.5 x\n1 1 0 .7\n1 1 1 3e-1\n2 0 2 1\n3 0 3 1\n"
LAB = '0="init" 1="deadlock" 2="heads" 3="done"\n0: 0\n2: 2 3\n3: 1 3\n'
STA = "(s,coin)\n0:(0,0)\n1:(1,0)\n2:(2,1)\n3:(2,2)\n"


def write(folder: Path, **files: str) -> Path:
    for suffix, text in files.items():
        (folder / f"model.{suffix}").write_text(text)
    return folder / "model"


def same(one: cm.TabularMDP, other: cm.TabularMDP) -> None:
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_allclose(one.dense_transition(), other.dense_transition(), rtol=1e-15)
    np.testing.assert_allclose(one.initial, other.initial, rtol=1e-15)
    assert set(one.signals) == set(other.signals)
    for name in one.signals:
        np.testing.assert_allclose(one.signal(name), other.signal(name), rtol=1e-12, atol=1e-15)


def test_the_manuals_form(tmp_path) -> None:
    rewards = "4 5 2\n1 0 2 10\n1 1 1 2\n"
    prefix = write(tmp_path, tra=TRA, lab=LAB, sta=STA, srew="4 1\n0 5\n", trew=rewards)
    mdp = cm.from_prism(prefix, 0.9)
    assert (mdp.n_states, mdp.n_actions) == (4, 2)
    np.testing.assert_array_equal(mdp.dense_transition()[1], [[0, 0, 0.5, 0.5], [0.7, 0.3, 0, 0]])
    np.testing.assert_array_equal(mdp.actions[:, 1], [False, True, False, False])
    np.testing.assert_array_equal(mdp.initial, [1, 0, 0, 0])
    # state and transition rewards of one structure add up; the second are averaged over successors
    np.testing.assert_allclose(mdp.signal("reward"), [[5, 0], [5, 0.6], [0, 0], [0, 0]])
    np.testing.assert_array_equal(mdp.signal("heads")[:, 0], [0, 0, 1, 0])
    assert mdp.state_names == ("(0,0)", "(1,0)", "(2,1)", "(2,2)")
    ended = cm.from_prism(prefix.with_suffix(".tra"), 0.9, end="done")
    assert ended.n_states == 2
    np.testing.assert_array_equal(ended.ending, [[0, 0], [1, 0]])
    np.testing.assert_allclose(ended.signal("reward"), mdp.signal("reward")[:2])


def test_a_markov_chain(tmp_path) -> None:
    mdp = cm.from_prism(write(tmp_path, tra="2 3\n0 0 0.25\n0 1 0.75\n1 0 1\n"), 0.9)
    np.testing.assert_array_equal(mdp.dense_transition()[:, 0], [[0.25, 0.75], [1, 0]])
    np.testing.assert_array_equal(mdp.initial, [1, 0])


@hypothesis.settings(max_examples=15)
@hypothesis.given(seeds)
def test_there_and_back(tmp_path_factory, seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    mdp = mdp.replace(initial=int(random.integers(mdp.n_states)))
    prefix = tmp_path_factory.mktemp("prism") / "model.v1"
    written = cm.to_prism(mdp, prefix)
    assert [path.name for path in written[:3]] == [f"model.v1.{e}" for e in ("tra", "sta", "lab")]
    end = "end" if (mdp.ending > 0).any() else None
    same(cm.from_prism(prefix, mdp.discount, end=end), mdp)


def test_names_and_grids_there_and_back(tmp_path) -> None:
    mdp = cm.gridworld(3, slip=0.1, discount=0.9, goal=8, hazards=[4], start=[0, 2])
    mdp = mdp.replace(state_names=[f"({i // 3},{i % 3})" for i in range(9)])
    cm.to_prism(mdp, tmp_path / "grid")
    back = cm.from_prism(tmp_path / "grid", 0.9, end="end")
    same(back, mdp)
    assert back.action_names == mdp.action_names
    assert back.state_names == mdp.state_names
    reordered = cm.from_prism(
        tmp_path / "grid", 0.9, end="end", actions=["up", "left", "down", "right"]
    )
    np.testing.assert_array_equal(reordered.signal("reward")[:, 1:3], mdp.signal("reward")[:, :2])


def test_a_distribution_has_no_place_there(tmp_path) -> None:
    mdp = cm.gridworld(2).replace(initial=[0.5, 0.25, 0.25, 0.0])
    with pytest.raises(ModelError, match="initial states, not a distribution"):
        cm.to_prism(mdp, tmp_path / "grid")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tra": ""}, "model.tra is empty"),
        ({"tra": "4 5\n0 0 1 1\n0 0\n"}, "model.tra, line 3: '0 0'; expected 'state next prob"),
        ({"tra": "1 1 1\n0 0 0 one\n"}, "model.tra, line 2: the probability is 'one'"),
        ({"tra": "1 1 1\n0 0 0 -1\n"}, "model.tra, line 2: the probability is -1"),
        ({"tra": "1 1 1\n0 0 1 1\n"}, "model.tra, line 2: the next state is 1; expected one below"),
        ({"tra": "1 1 1\n0 -1 0 1\n"}, "model.tra, line 2: the choice is '-1'"),
        ({"tra": "1 1 2\n0 0 0 1\n"}, "ends after 1 of the 2 transitions"),
        ({"tra": "1 1 1\n0 0 0 1\n0 0 0 1\n"}, "model.tra, line 3: more transitions than the 1"),
        ({"tra": "1 1 2\n0 0 0 .5\n0 0 0 .5\n"}, "the transition 0 0 0 is there twice"),
        ({"tra": "2 2 2\n0 0 0 1\n0 1 0 1\n"}, "state 1 has no transition"),
        ({"tra": "999999999999 1 1\n0 0 0 1\n"}, "999,999,999,999 states and only 1 transitions"),
        ({"tra": "2 2 3\n0 0 0 .333333\n0 0 1 .666666\n1 0 1 1\n"}, "not to one.*rescale=True"),
        ({"lab": "init\n0: 0\n"}, "model.lab, line 1: 'init'; expected labels"),
        ({"lab": '0="init"\n0: 7\n'}, "model.lab, line 2: label 7 is not named"),
        ({"lab": '0="init"\n0 0\n'}, "model.lab, line 2: '0 0'; expected a state, a colon"),
        ({"lab": '0="init"\n9: 0\n'}, "model.lab, line 2: the state is 9; expected one below 4"),
        ({"lab": '0="init"\n'}, "labels no state"),
        ({"sta": "(s)\n1:(0)\n"}, r"model.sta, line 2: '1:\(0\)'; expected state 0"),
        ({"sta": "(s)\n0:(0)\n"}, "names 1 states of 4"),
        ({"srew": "4 1\n0 nan\n"}, "model.srew, line 2: the reward is 'nan'"),
        ({"srew": "4 2\n0 1\n"}, "model.srew holds 1 rewards, its first line says 2"),
        ({"srew": "5 1\n0 1\n"}, "is for 5 states, the model has 4"),
        ({"trew": "4 5 1\n0 0 3 1\n"}, "model.trew, line 2: the model has no transition 0 0 3"),
        ({"trew": "4 5\n0 0 3 1\n"}, "model.trew, line 1: the first line is '4 5'; expected 3"),
    ],
)
def test_damaged_files_are_named_by_line(tmp_path, files, message) -> None:
    prefix = write(tmp_path, **{"tra": TRA, "lab": LAB, **files})
    with pytest.raises(FileFormatError, match=message):
        cm.from_prism(prefix, 0.9)


def test_other_mistakes(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing\.tra"):
        cm.from_prism(tmp_path / "nothing", 0.9)
    prefix = write(tmp_path, tra=TRA, lab=LAB)
    with pytest.raises(FileFormatError, match=r"no label 'finished'\. Known: 'init'"):
        cm.from_prism(prefix, 0.9, end="finished")
    with pytest.raises(FileFormatError, match="more than max_pairs=7 together"):
        cm.from_prism(prefix, 0.9, max_pairs=7)
    with pytest.raises(FileFormatError, match="has 4 labels"):
        cm.from_prism(prefix, 0.9, max_pairs=31)
    few = "2 2 3\n0 0 0 .333333\n0 0 1 .666666\n1 0 1 1\n"
    mdp = cm.from_prism(write(tmp_path, tra=few, lab='0="init"\n0: 0\n'), 0.9, rescale=True)
    np.testing.assert_array_equal(mdp.ending, 0.0)


def test_a_program_is_not_a_table(tmp_path) -> None:
    (tmp_path / "dice.nm").write_text("mdp\nmodule dice\nendmodule\n")
    with pytest.raises(FileFormatError, match=r"dice.nm is a program.*from_storm.*-exportmodel"):
        cm.from_prism(tmp_path / "dice.nm", 0.9)


def test_the_dialect_that_storm_reads(tmp_path) -> None:
    stormpy = pytest.importorskip("stormpy")
    mdp = cm.garnet(6, 2, 3, seed=3, ending=0.2).replace(initial=1)
    mdp = mdp.with_signals(stay=np.arange(6.0))  # a state reward, the others are of transitions
    cm.to_prism(mdp, tmp_path / "model", dialect="storm")
    read = stormpy.build_model_from_explicit(
        tmp_path / "model.tra",
        tmp_path / "model.lab",
        state_rewards=tmp_path / "model3.srew",
        transition_rewards=tmp_path / "model1.trew",
    )
    assert (read.nr_states, read.nr_choices) == (7, 13)
    assert list(read.initial_states) == [1]
    total = stormpy.parse_properties('Rmax=? [F "end"]')[0]
    found = stormpy.model_checking(read, total).get_value(1)
    expected = exact_total(mdp, mdp.signal("reward") + mdp.signal("stay"))
    assert found == pytest.approx(expected[1], rel=1e-5)
    with pytest.raises(ModelError, match="dialect must be one of 'prism', 'storm'"):
        cm.to_prism(mdp, tmp_path / "model", dialect="spin")


def exact_total(mdp: cm.TabularMDP, reward: np.ndarray) -> np.ndarray:
    """The best undiscounted return, by sweeps: every row ends with probability 0.2."""
    values = np.zeros(mdp.n_states)
    for _ in range(400):
        values = (reward + mdp.dense_transition() @ values).max(axis=1)
    return values
