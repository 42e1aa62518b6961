"""Large arrays in blocks: the same bits with any number of threads, and no thread that waits for ever."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from cvxmdp.base.blocks import cores, in_blocks
from cvxmdp.models import systems
from cvxmdp.runs.backends.ray_backend import Ray
from cvxmdp.runs.backends.this_process import ThisProcess

THREADS = ("1", "2", "5")


@pytest.fixture(autouse=True)
def five_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)


def test_runs_are_spread_over_the_cores_of_the_process_not_of_the_machine() -> None:
    assert ThisProcess().cores() == Ray().cores() == 5


def test_every_block_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads in THREADS:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert cores() == int(threads)
        done = np.zeros(1_003, dtype=int)

        def work(begin: int, end: int, done: np.ndarray = done) -> None:
            done[begin:end] += 1

        in_blocks(work, done.size, 10)
        assert (done == 1).all()


def test_errors_of_a_block_are_raised_and_blocks_within_blocks_end() -> None:
    def fails(begin: int, end: int) -> None:
        if begin == 70:
            raise ValueError("the seventh")

    with pytest.raises(ValueError, match="the seventh"):
        in_blocks(fails, 100, 10)
    done = np.zeros((40, 40))

    def nested(begin: int, end: int) -> None:
        def inner(first: int, last: int) -> None:
            done[begin:end, first:last] += 1

        in_blocks(inner, 40, 1)

    in_blocks(nested, 40, 1)
    assert (done == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    in_blocks(lambda begin, end: None, 100, 1)
    child = os.fork()
    if child == 0:
        seen: set[int] = set()
        in_blocks(lambda begin, end: seen.add(threading.get_ident()), 1_000, 1)
        os._exit(0 if seen else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_products_have_the_same_bits_with_any_number_of_threads(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "LIGHT_BEYOND", 1_000)
    rng = np.random.default_rng(0)
    matrix = sp.csr_array(sp.random_array((70_000, 900), density=1e-3, rng=rng, dtype=np.float64))
    matrix = matrix.astype(kind)
    right, left = rng.random(900).astype(kind), rng.random(70_000).astype(kind)
    backward = []
    for threads in THREADS:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert np.array_equal(systems.product(matrix, right), matrix @ right)
        backward.append(systems.product(matrix.T, left))
    np.testing.assert_allclose(backward[0], matrix.T @ left, rtol=1e-4)
    assert all(np.array_equal(backward[0], other) for other in backward)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("norm", [systems.total, systems.half_spread])
def test_sweeps_in_single_precision_lose_no_digits(
    backward: bool, norm: systems.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    chain = sp.csr_array(sp.random_array((3_000, 3_000), density=2e-3, rng=rng, dtype=np.float64))
    chain = sp.csr_array(chain + sp.eye_array(3_000, 3_000))
    chain = sp.csr_array(sp.diags_array(1.0 / np.asarray(chain.sum(axis=1)).ravel()) @ chain)
    matrix, right = chain.T if backward else chain, rng.random(3_000)
    exact = systems.solve_discounted(matrix, right, 0.9)
    monkeypatch.setattr(systems, "LIGHT_BEYOND", 1_000)
    found, _ = systems.settle(matrix, right, 0.9, np.zeros(3_000), 1e-9, norm)
    assert norm(right + 0.9 * (matrix @ found) - found) <= 2e-9
    assert norm(found - exact) <= 1e-7
