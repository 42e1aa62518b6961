"""Files with something wrong in them: whoever reads them says so in our words, soon, and in little memory."""

from __future__ import annotations

import io
import re
import resource
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import cvxmdp as cm
from cvxmdp.base.npz_files import read_npy, read_npz
from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.check import check_file
from cvxmdp.checker.saved_problem import read_problem as read_saved
from cvxmdp.runs.specs.problem_specs import read_problem, read_sweep

QUICK, LONG = 40, 5_000  # mutated files of each kind
SECONDS = 10.0  # of the processor, for one of them
MEMORY = 2**31  # bytes that reading a file of a few kilobytes may take at the very most
WORDS = re.compile(rb'-?\d+(\.\d+)?([eE]-?\d+)?|"[^"]{0,40}"|true|false')
OTHERS = [b"0", b"-1", b"1e308", b"NaN", b"Infinity", b"999999999999", b"9" * 40, b"null", b'"x"',
          b"[]", b"{}", b"true", b"1e-320", b"3.5", b"[[[[1]]]]"]  # fmt: skip

PROBLEM = """
maximize = "entropy() + 0.5 * linear('reward')"
[subject_to]
hazard = "linear('hazard', per='step') <= 0.1"
near = "distance(file('expert.npz#occupancy'), norm='l2') <= 2.0"
[model]
kind = "gridworld"
size = 3
slip = 0.1
discount = 0.9
hazards = [4]
[solver]
name = "PDPG"
iterations = 5
"""


GRADUAL = cm.ColumnGeneration(1e-3)


def model() -> cm.TabularMDP:
    return cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4], rewards={8: 1.0})


def problem() -> cm.Problem:
    budget = cm.linear("hazard", per="step") <= 0.1
    return cm.Problem(
        model(), maximize=cm.entropy() + cm.linear("reward"), subject_to={"h": budget}
    )


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one good file, or folder, of every kind."""
    folder = tmp_path_factory.mktemp("honest")
    asked, random = problem(), np.random.default_rng(0)
    solution = cm.solve(asked, cm.ConvexProgram())
    model().save(folder / "model.safetensors")
    cm.TabularPolicy(random.dirichlet(np.ones(4), 9)).save(folder / "policy.safetensors")
    cm.certify(asked, solution).save(folder / "certificate.json")
    asked.save(folder / "problem")
    solution.save(folder / "solution")
    cm.solve(asked, cm.ColumnGeneration(1e-2), folder=folder / "run")
    (folder / "prism").mkdir()
    cm.to_prism(model(), folder / "prism" / "grid")
    model().to_umb(folder / "model.umb")
    occupancy = cm.occupancy_of(model(), cm.uniform_policy(model()))
    np.savez_compressed(folder / "expert.npz", occupancy=occupancy)
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "sweep.toml").write_text(
        'problem = "problem.toml"\n[over]\nprimal_step = [0.1, 0.2]\n'
    )
    steps = {"episode": [0, 0, 0, 1, 1], "state": [0, 1, 2, 0, 3], "action": [0, 1, 2, 3, 0]}
    log = {
        **steps,
        "next_state": [1, 2, 8, 3, 0],
        "reward": [0.5, 0, 1, 0, 0],
        "terminated": [0, 0, 1, 0, 0],
    }
    rows = zip(*log.values(), strict=True)
    lines = [",".join(log), *(",".join(map(str, row)) for row in rows)]
    (folder / "log.csv").write_text("\n".join(lines))
    np.savez(folder / "steps.npz", **{name: np.array(column) for name, column in log.items()})
    _tables(folder, log)
    return folder


def _tables(folder: Path, log: dict[str, list[float]]) -> None:
    """Policies as tables, logs of other programs, an evaluation, and runs that can be gone on with."""
    policy = cm.uniform_policy(model())
    for ending in ("csv", "json", "npz", "parquet"):
        policy.save(folder / f"policy.{ending}")
    pq.write_table(pa.table(log), folder / "log.parquet")
    with h5py.File(folder / "episodes.hdf5", "w") as file:
        for number, length in enumerate((3, 4)):
            episode = file.create_group(f"episode_{number}")
            episode["observations"] = np.arange(length + 1)
            episode["actions"] = np.zeros(length, dtype=np.int64)
            for name in ("rewards", "terminations", "truncations"):
                episode[name] = np.zeros(length)
    cm.evaluate(policy, model(), 8, seed=0, problem=problem()).save(folder / "evaluation.json")
    cm.solve(problem(), GRADUAL, folder=folder / "stopped", time_limit=1e-3)
    swept(folder / "sweep")


def swept(folder: Path) -> cm.Sweep:
    over = {"tolerance": [1e-1, 1e-2]}
    return cm.sweep(problem(), GRADUAL, over, folder=folder, progress=False)


def checked(folder: Path) -> bool:
    try:
        return bool(check_file(folder.parent / "certificate.json", read_saved(folder)))
    except CertificateError:
        return False


READERS: dict[str, Callable[[Path], Any]] = {
    "model.safetensors": cm.TabularMDP.load,
    "policy.safetensors": cm.load_policy,
    "certificate.json": lambda path: cm.check(path, problem()),
    "problem": cm.load_problem,
    "problem as the checker reads it": checked,
    "solution": cm.load_solution,
    "run": cm.load_solution,
    "prism": lambda path: cm.from_prism(path / "grid", 0.9),
    "model.umb": lambda path: cm.from_umb(path, discount=0.9),
    "expert.npz": read_npz,
    "problem.toml": read_problem,
    "sweep.toml": read_sweep,
    "log.csv": lambda path: cm.from_transitions(path, 0.9),
    "steps.npz": lambda path: cm.demonstrations(path, model()),
    "policy.csv": cm.load_policy,
    "policy.json": cm.load_policy,
    "policy.npz": cm.load_policy,
    "policy.parquet": cm.load_policy,
    "log.parquet": lambda path: cm.from_transitions(path, 0.9),
    "episodes.hdf5": lambda path: cm.demonstrations(path, model()),
    "evaluation.json": cm.PolicyEvaluation.load,
    "stopped": lambda path: cm.solve(problem(), GRADUAL, folder=path, progress=False),
    "sweep": swept,
}


def mutated(data: bytes, random: Random) -> bytes:
    """Bytes changed, lost or added; or another number or word where one stood, headers kept whole."""
    changed, kind = bytearray(data), random.random()
    place = random.randrange(max(len(data), 1))
    if kind < 0.15:
        for _ in range(random.randint(1, 8)):
            changed[random.randrange(len(data))] = random.randrange(256)
    elif kind < 0.25:
        del changed[place:]
    elif kind < 0.35:
        changed[place:place] = random.randbytes(random.randint(1, 30))
    elif kind < 0.45:
        del changed[place : place + random.randint(1, 60)]
    else:
        found = random.choice(list(WORDS.finditer(data)) or [re.match(b"", data)])
        other = random.choice(OTHERS)
        changed[found.start() : found.end()] = other  # type: ignore[union-attr]
        if data[8:9] == b"{":  # safetensors: the header's length comes first
            (length,) = struct.unpack("<Q", data[:8])
            longer = len(changed) - len(data)
            changed[:8] = struct.pack("<Q", length + longer)
    return bytes(changed)


@contextmanager
def little_memory() -> Iterator[None]:
    """Asking for more than ``MEMORY`` beyond what the process has is a MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def soon() -> Iterator[None]:
    """A TimeoutError after so many seconds of processor time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"reading took more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def read_many(name: str, count: int, honest: Path, folder: Path) -> None:
    """Every mutated file is read, or refused with an error of ours."""
    shutil.copytree(honest, folder, dirs_exist_ok=True)
    whole = folder / name.split()[0]
    READERS[name](whole)
    files = (
        [whole] if whole.is_file() else sorted(path for path in whole.rglob("*") if path.is_file())
    )
    random, refused = Random(name), 0
    for _ in range(count):
        target = random.choice(files)
        data = target.read_bytes()
        target.write_bytes(mutated(data, random) if data else b"?")
        try:
            with little_memory(), soon():
                refused += not READERS[name](whole)
        except cm.CvxmdpError:
            refused += 1
        finally:
            target.write_bytes(data)
    assert refused > 0


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="asks Linux for memory"
)


@pytest.mark.parametrize("name", READERS)
def test_a_broken_file_is_refused_in_our_words(name: str, honest: Path, tmp_path: Path) -> None:
    read_many(name, QUICK, honest, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_a_thousand_broken_files_of_every_kind(name: str, honest: Path, tmp_path: Path) -> None:
    read_many(name, LONG, honest, tmp_path)


def test_a_header_that_is_no_dictionary_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    cut = (tmp_path / "a.npy").read_bytes().replace(b"}", b" ")
    with pytest.raises(cm.FileFormatError, match="not an array"):
        read_npy(io.BytesIO(cut), len(cut), "a.npy")
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-30] + b"\xff" * 30)
    with pytest.raises(cm.FileFormatError):
        read_npz(tmp_path / "b.npz")
    (tmp_path / "log.csv").write_bytes(b"episode,st\xffte\n0,1\n")
    with pytest.raises(cm.CvxmdpError, match=r"log\.csv is not text in UTF-8"):
        cm.from_transitions(tmp_path / "log.csv", 0.9)


@pytest.mark.parametrize("name", ["model.safetensors", "policy.safetensors"])
def test_no_flipped_bit_goes_unnoticed(name: str, honest: Path, tmp_path: Path) -> None:
    data, random = (honest / name).read_bytes(), Random(1)
    file = tmp_path / name
    for _ in range(300):
        place, bit = random.randrange(len(data)), 1 << random.randrange(8)
        file.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        with pytest.raises(cm.CvxmdpError):
            READERS[name](file)


def test_files_of_earlier_releases_have_no_checksum(honest: Path, tmp_path: Path) -> None:
    with safe_open(honest / "policy.safetensors", framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    del metadata["sha256"]
    save_file(arrays, tmp_path / "old.safetensors", metadata)
    old, new = cm.load_policy(tmp_path / "old.safetensors"), honest / "policy.safetensors"
    assert np.array_equal(old.probabilities(), cm.load_policy(new).probabilities())


def test_masked_entries_are_no_numbers() -> None:
    def masked(*shape: int) -> np.ma.MaskedArray:
        return np.ma.masked_array(np.ones(shape), mask=np.eye(*shape[-2:]))

    for make in (
        lambda: cm.TabularMDP(masked(1, 1, 1), [1.0], 0.9),
        lambda: cm.TabularPolicy(masked(1, 1)),
        lambda: cm.linear(masked(9, 4)),
        lambda: cm.Problem(model(), minimize=cm.distance(masked(9, 4))),
    ):
        with pytest.raises(cm.CvxmdpError, match="masked"):
            make()
    assert cm.TabularPolicy(np.ma.masked_array([[1.0]], mask=False)).n_states == 1


def test_towers_of_functions_are_flattened_or_refused() -> None:
    tower = cm.linear("hazard")
    for number in range(200):
        tower = cm.minimum(tower, cm.linear("hazard") + number)
    flat = cm.Problem(model(), maximize=tower)
    assert cm.check(cm.certify(flat, cm.solve(flat)), flat)
    for number in range(200):
        tower = cm.minimum(cm.sqrt(tower + 1.0), cm.linear("hazard") + number)
    with pytest.raises(cm.ProblemError, match="40 functions deep"):
        cm.Problem(model(), maximize=tower)


def test_links_in_circles_are_told(tmp_path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(cm.FileFormatError, match="cannot be opened"):
        cm.from_transitions(tmp_path / "loop", 0.9)
    with pytest.raises(cm.CvxmdpError, match="cannot be opened"):
        cm.demonstrations(tmp_path / "loop", n_states=3, n_actions=2, discount=0.9)
    with pytest.raises(cm.FileFormatError, match="cannot be opened"):
        cm.TabularMDP.load(tmp_path / "loop")
