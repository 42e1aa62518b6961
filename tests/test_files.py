"""Files: bit-equal round trips, and damaged or foreign files that are errors and nothing worse."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.storage import read_arrays, write_arrays
from cvxmdp.policies.observers import on_observations
from environments import Point


def masked_model() -> cm.TabularMDP:
    mask = np.ones((6, 3), dtype=bool)
    mask[2, 1:] = False
    signals = ("reward", "a cost / with = odd name, é")
    garnet = cm.garnet(6, 3, 2, seed=4, ending=0.1, discount=0.1 + 0.2, signals=signals)
    return garnet.replace(actions=mask, state_names=list("uvwxyz"), action_names=["l", "m", "r"])


MODELS = {
    "grid": lambda: cm.gridworld((2, 3), slip=0.1, goal=5, hazards=[1], walls=[4], start=[0, 2]),
    "masked": masked_model,
    "without signals": lambda: cm.TabularMDP(np.eye(2)[:, None, :], [1 / 3, 2 / 3], 0.0),
    "ends at once": lambda: cm.TabularMDP(np.zeros((2, 1, 2)), 1, 0.9),
    "frozen lake": lambda: cm.from_gymnasium_table("FrozenLake-v1", 0.99),
}


def assert_same_bits(first: np.ndarray, second: np.ndarray) -> None:
    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_models_return_bit_for_bit(name: str, tmp_path: Path) -> None:
    mdp = MODELS[name]()
    mdp.save(tmp_path / "model")
    loaded = cm.TabularMDP.load(tmp_path / "model")
    for part in ("data", "indices", "indptr"):
        assert_same_bits(getattr(loaded.transition, part), getattr(mdp.transition, part))
    for part in ("initial", "actions", "ending"):
        assert_same_bits(getattr(loaded, part), getattr(mdp, part))
    assert list(loaded.signals) == list(mdp.signals)
    for signal in mdp.signals:
        assert_same_bits(loaded.signal(signal), mdp.signal(signal))
    assert loaded.discount == mdp.discount
    assert (loaded.state_names, loaded.action_names) == (mdp.state_names, mdp.action_names)
    assert loaded.layout == mdp.layout
    assert repr(loaded) == repr(mdp)


POLICIES = {
    "tabular": lambda: cm.TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(3), size=4)),
    "column order": lambda: cm.TabularPolicy(np.asfortranarray([[0.1, 0.9], [0.7, 0.3]])),
    "softmax": lambda: cm.SoftmaxTable(
        np.random.default_rng(0).normal(size=(2, 3)), [[True, False, True], [True, True, True]]
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_return_bit_for_bit(name: str, tmp_path: Path) -> None:
    policy = POLICIES[name]()
    policy.save(str(tmp_path / "policy"))
    loaded = cm.load_policy(str(tmp_path / "policy"))
    assert type(loaded) is type(policy)
    np.testing.assert_array_equal(loaded.probabilities(), policy.probabilities())
    if isinstance(policy, cm.SoftmaxTable):
        assert_same_bits(loaded.params, policy.params)
        assert_same_bits(loaded.actions, policy.actions)


# Writing: whole or not at all


def test_saving_again_replaces_the_file(tmp_path: Path) -> None:
    cm.gridworld(2).save(tmp_path / "model")
    cm.gridworld(3).save(tmp_path / "model")
    assert cm.TabularMDP.load(tmp_path / "model").n_states == 9
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("broken", ["save_file", "replace"])
def test_a_failed_write_leaves_the_old_file(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    cm.gridworld(2).save(path)
    before = path.read_bytes()

    def fail(*arguments, **_) -> None:
        if broken == "save_file":
            Path(arguments[1]).write_bytes(b"half of i")
        raise OSError("no space left on device")

    owner = "safetensors.numpy.save_file" if broken == "save_file" else "os.replace"
    monkeypatch.setattr(owner, fail)
    with pytest.raises(OSError, match="no space left"):
        cm.gridworld(3).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_saved_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    cm.gridworld(2).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode


WRITERS = {
    "model": lambda path: cm.gridworld(2).save(path),
    "policy": lambda path: POLICIES["tabular"]().save(path),
    "certificate": lambda path: certificate().save(path),
}


def certificate() -> cm.Certificate:
    problem = cm.Problem(cm.gridworld(2, goal=3), maximize=cm.linear("reward"))
    return cm.certify(problem, np.full((4, 4), 0.25))


def assert_names_no_temporary_file(error: BaseException) -> None:
    assert "/." not in str(error)


@pytest.mark.parametrize("what", WRITERS)
def test_a_folder_that_does_not_exist(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "no"
    message = f"cannot write {folder / 'it'}: there is no folder {folder}; make it first"
    with pytest.raises(FileNotFoundError, match=re.escape(message)) as caught:
        WRITERS[what](folder / "it")
    assert_names_no_temporary_file(caught.value)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file is a file, not a folder") as caught:
        cm.gridworld(2).save(tmp_path / "file" / "model")
    assert_names_no_temporary_file(caught.value)


def test_another_failure_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)  # longer than file systems allow
    with pytest.raises(OSError, match="name too long") as caught:
        cm.gridworld(2).save(path)
    assert caught.value.filename == str(path)


# Reading what is not ours


class Mine:
    """Unpickling this would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def header(content: dict, numbers: bytes = b"") -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def described(kind: str, description: str, **tensors: dict) -> dict:
    return {"__metadata__": {"cvxmdp": kind, "description": description}, **tensors}


FLOAT8 = {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}
FOREIGN = {
    "empty": b"",
    "five bytes": b"12345",
    "random": np.random.default_rng(0).bytes(4_000),
    "zeros": bytes(4_000),
    "text": b"import os\n" * 100,
    "huge header": struct.pack("<Q", 2**60) + b"{}",
    "no description": header({"__metadata__": {"cvxmdp": "model"}}),
    "not JSON": header(described("model", "{")),
    "a list": header(described("model", "[]")),
    "deep JSON": header(described("model", "[" * 200_000)),
    "nothing inside": header(described("model", "{}")),
    "somebody else's": header({"__metadata__": {"format": "pt"}}),
    "no metadata": header({}),
    "numbers NumPy does not know": header(described("model", "{}", actions=FLOAT8), b"12"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("load", [cm.TabularMDP.load, cm.load_policy])
def test_foreign_files(name: str, load, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(FOREIGN[name])
    with pytest.raises(FileFormatError, match="file"):
        load(tmp_path / "file")


@pytest.mark.parametrize("load", [cm.TabularMDP.load, cm.load_policy])
def test_a_pickle_is_not_executed(load, tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    (tmp_path / "file").write_bytes(pickle.dumps(Mine(trace)))
    with pytest.raises(FileFormatError, match="not a file that cvxmdp wrote"):
        load(tmp_path / "file")
    assert not trace.exists()
    pickle.loads((tmp_path / "file").read_bytes())  # it would have been
    assert trace.exists()


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    cm.gridworld(2, goal=3).save(tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            cm.TabularMDP.load(tmp_path / "cut")
    (tmp_path / "cut").write_bytes(whole + b"more")
    with pytest.raises(FileFormatError):
        cm.TabularMDP.load(tmp_path / "cut")


def test_flipped_bytes_are_a_model_or_an_error(tmp_path: Path) -> None:
    masked_model().save(tmp_path / "model")
    whole = np.frombuffer((tmp_path / "model").read_bytes(), dtype=np.uint8)
    random, refused = np.random.default_rng(0), 0
    for _ in range(300):
        damaged = whole.copy()
        damaged[random.integers(whole.size, size=3)] ^= random.integers(1, 256, 3, dtype=np.uint8)
        (tmp_path / "damaged").write_bytes(damaged.tobytes())
        try:
            mdp = cm.TabularMDP.load(tmp_path / "damaged")
        except FileFormatError:
            refused += 1
        else:
            cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    assert refused > 100


def test_kinds_are_not_confused(tmp_path: Path) -> None:
    cm.gridworld(2).save(tmp_path / "model")
    cm.TabularPolicy([[1.0]]).save(tmp_path / "policy")
    with pytest.raises(FileFormatError, match="does not hold a model but a policy"):
        cm.TabularMDP.load(tmp_path / "policy")
    with pytest.raises(FileFormatError, match="does not hold a policy but a model"):
        cm.load_policy(tmp_path / "model")


@pytest.mark.parametrize("load", [cm.TabularMDP.load, cm.load_policy])
def test_no_file_and_a_folder(load, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")
    with pytest.raises(FileFormatError):
        load(tmp_path)


# Tampered files: the format is right, the contents are not


def layout(**changes) -> dict:
    return {"layout": {"rows": 2, "columns": 2, **changes}}


TAMPERED_MODELS = {
    "indices too large": (lambda a: {"transition/indices": a["transition/indices"] + 10**6}, {}),
    "indices negative": (lambda a: {"transition/indices": a["transition/indices"] - 4}, {}),
    "pointers backwards": (lambda a: {"transition/indptr": a["transition/indptr"][::-1]}, {}),
    "pointers negative": (lambda a: {"transition/indptr": -a["transition/indptr"]}, {}),
    "pointers too long": (lambda a: {"transition/indptr": a["transition/indptr"] * 1000}, {}),
    "pointers missing": (lambda a: {"transition/indptr": a["transition/indptr"][:-1]}, {}),
    "nan": (lambda a: {"transition/data": a["transition/data"] * np.nan}, {}),
    "negative": (lambda a: {"transition/data": -a["transition/data"]}, {}),
    "more than one": (lambda a: {"transition/data": a["transition/data"] * 2}, {}),
    "two dimensions": (lambda a: {"transition/data": a["transition/data"][:, None]}, {}),
    "complex": (lambda a: {"initial": a["initial"].astype(np.complex64)}, {}),
    "initial": (lambda a: {"initial": a["initial"] * 2}, {}),
    "initial shape": (lambda a: {"initial": a["initial"][:2]}, {}),
    "signal nan": (lambda a: {"signal/reward": a["signal/reward"] * np.nan}, {}),
    "signal shape": (lambda a: {"signal/reward": a["signal/reward"][:2]}, {}),
    "mask of numbers": (lambda a: {"actions": a["actions"].astype(np.int8)}, {}),
    "mask empty": (lambda a: {"actions": a["actions"][:0]}, {}),
    "mask without actions": (lambda a: {"actions": a["actions"][:, :0]}, {}),
    "mask one dimension": (lambda a: {"actions": a["actions"].ravel()}, {}),
    "mask false": (lambda a: {"actions": ~a["actions"]}, {}),
    "discount above one": (dict, {"discount": 1.5}),
    "discount nan": (dict, {"discount": float("nan")}),
    "discount huge": (dict, {"discount": 10**400}),
    "discount text": (dict, {"discount": "x"}),
    "discount none": (dict, {"discount": None}),
    "signals unknown": (dict, {"signals": ["other"]}),
    "signals number": (dict, {"signals": 5}),
    "signals nested": (dict, {"signals": [["reward"]]}),
    "names few": (dict, {"state_names": ["a"]}),
    "names number": (dict, {"action_names": 4}),
    "layout text": (dict, {"layout": "grid"}),
    "layout list": (dict, {"layout": [1]}),
    "layout number": (dict, {"layout": 5}),
    "layout field": (dict, layout(colour="red")),
    "layout size": (dict, layout(rows=3)),
    "layout float": (dict, layout(rows=2.0)),
    "layout negative": (dict, layout(rows=-2, columns=-2)),
    "layout walls": (dict, layout(walls=[99])),
    "layout walls number": (dict, layout(walls=5)),
    "layout walls float": (dict, layout(rows=2**40, columns=2**40, walls=[0.5])),
    "layout walls nested": (dict, layout(walls=[[1]])),
}


@pytest.mark.parametrize("case", TAMPERED_MODELS)
def test_tampered_models(case: str, tmp_path: Path) -> None:
    cm.gridworld(2, slip=0.1, goal=3).save(tmp_path / "model")
    arrays, description = read_arrays(tmp_path / "model", "model")
    change, words = TAMPERED_MODELS[case]
    write_arrays(
        tmp_path / "tampered", "model", {**arrays, **change(arrays)}, {**description, **words}
    )
    with pytest.raises(FileFormatError, match="does not hold a valid model"):
        cm.TabularMDP.load(tmp_path / "tampered")


def test_untampered_contents_written_the_same_way_are_a_model(tmp_path: Path) -> None:
    cm.gridworld(2, slip=0.1, goal=3).save(tmp_path / "model")
    arrays, description = read_arrays(tmp_path / "model", "model")
    write_arrays(tmp_path / "again", "model", arrays, description)
    assert cm.TabularMDP.load(tmp_path / "again").n_states == 4


@pytest.mark.parametrize(
    ("arrays", "kind", "message"),
    [
        ({"probabilities": np.array([[0.5, 0.4]])}, "tabular", "sum to 0.9"),
        ({"probabilities": np.array([[np.nan, 1.0]])}, "tabular", "is nan"),
        ({"probabilities": np.array([0.5, 0.5])}, "tabular", r"\(S, A\) matrix"),
        ({}, "tabular", "probabilities"),
        ({"params": np.zeros((1, 2))}, "softmax table", "actions"),
        ({"params": np.zeros((1, 2)), "actions": np.ones((1, 2))}, "softmax table", "boolean"),
        (
            {"params": np.full((1, 2), np.inf), "actions": np.ones((1, 2), dtype=bool)},
            "softmax table",
            "is inf",
        ),
        (
            {"probabilities": np.ones((1, 1)), "components": np.full((2, 1, 1), -1.0)},
            "mixture",
            r"component 0 .* is \[-1\.\] in state 0",
        ),
        (
            {
                "probabilities": np.array([[0.1, 0.9]]),
                "components": np.array([[[0.4, 0.6]], [[0.5, 0.5]]]),
            },
            "mixture",
            "in state 0 are not a mean of those of its components",
        ),
        ({"probabilities": np.ones((1, 1))}, "neural", "unknown kind 'neural'"),
        ({"probabilities": np.ones((1, 1))}, ["tabular"], "unknown kind"),
    ],
)
def test_tampered_policies(arrays: dict, kind, message: str, tmp_path: Path) -> None:
    write_arrays(tmp_path / "policy", "policy", arrays, {"kind": kind})
    with pytest.raises(FileFormatError, match=message):
        cm.load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("bins", "policy", "change", "message"),
    [
        (True, cm.Table(), lambda a: {"probabilities": np.ones((3, 1))}, "a table of 3 states for 4"),
        (True, cm.Table(), lambda a: {"features/low": -np.ones(2), "features/high": np.ones(2),
                                      "features/bins": np.array([2, 2])}, "do not fit"),
        (False, cm.MLP(3), lambda a: {"params0": np.full_like(a["params0"], np.nan)}, "finite"),
        (False, cm.MLP(3), lambda a: {"middle": np.zeros(3), "scale": np.ones(3)}, "shapes"),
        (False, cm.MLP(3), lambda a: {"scale": np.zeros(1)}, "to scale with"),
        (False, cm.MLP(3), lambda a: {"low": -np.ones(5)}, "do not fit"),
    ],
)  # fmt: skip
def test_observation_policies_whose_arrays_do_not_fit(
    bins: bool, policy: Any, change: Any, message: str, tmp_path: Path
) -> None:
    features = cm.UniformBins(-1, 1, 4) if bins else cm.RandomFourier(1, 3, seed=0)
    environment = cm.GymnasiumEnv(Point(), 0.9, features=features)
    bound = policy.bind(environment.space(["reward"]))
    table = bound.deploy(bound.init(jax.random.key(0)))
    on_observations(table, environment).save(tmp_path / "policy")
    arrays, description = read_arrays(tmp_path / "policy", "policy")
    cm.load_policy(tmp_path / "policy")
    write_arrays(tmp_path / "changed", "policy", {**arrays, **change(arrays)}, description)
    with pytest.raises(FileFormatError, match=message):
        cm.load_policy(tmp_path / "changed")


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for read in (cm.TabularMDP.load, cm.load_policy, lambda path: cm.from_transitions(path, 0.9)):
        with pytest.raises(FileFormatError, match="is not a plain file"):
            read(pipe)
