"""Features of observations."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError
from cvxmdp.policies.features import Features, Norms

random = np.random.default_rng(0)
POINTS = random.uniform(-2, 2, size=(50, 2))
KINDS = [
    (cm.OneHot(5), random.integers(5, size=50)),
    (cm.UniformBins([-1, -1], [1, 2], [3, 4]), POINTS),
    (cm.RandomFourier(2, 7, seed=0, scale=[1.0, 2.0]), POINTS),
    (cm.FeatureFunction(lambda o: jnp.stack([o[0], o[1], o.sum()]), 3), POINTS),
]


@pytest.mark.parametrize(("features", "batch"), KINDS, ids=lambda x: type(x).__name__)
def test_every_kind_has_a_size_and_takes_batches(features, batch) -> None:
    assert isinstance(features, Features)
    values = features(batch)
    assert isinstance(values, np.ndarray)
    assert values.shape == (50, features.size)
    np.testing.assert_allclose(features(jnp.asarray(batch)), values, atol=1e-5)
    np.testing.assert_array_equal(features(batch[7:8])[0], values[7])
    if features.norms is not None:
        assert np.abs(values).sum(axis=1).max() <= features.norms.l1 + 1e-12
        assert np.linalg.norm(values, axis=1).max() <= features.norms.l2 + 1e-12
        assert not features.norms.nonnegative or (values >= 0).all()


def test_bins_are_numbered_with_the_last_dimension_fastest() -> None:
    bins = cm.UniformBins([0, 0], [1, 1], [2, 3])
    assert bins.size == 6
    points = np.array([[0.1, 0.1], [0.1, 0.5], [0.1, 0.9], [0.6, 0.1], [-9, 9], [1, 1], [0.5, 0.0]])
    np.testing.assert_array_equal(bins.index(points), [0, 1, 2, 3, 2, 5, 3])
    assert cm.UniformBins(0, 1, 4).size == 4


def test_fourier_features_approximate_the_gaussian_kernel() -> None:
    features = cm.RandomFourier(2, 20_000, seed=1, scale=1.5)
    values = features(POINTS[:10])
    square = ((POINTS[:10, None] - POINTS[None, :10]) ** 2).sum(axis=2)
    # an entry is a mean of 20,000 numbers in [-2, 2]: four standard errors at most 0.04
    np.testing.assert_allclose(values @ values.T, np.exp(-square / (2 * 1.5**2)), atol=0.04)
    same = cm.RandomFourier(2, 20_000, seed=1, scale=1.5)
    np.testing.assert_array_equal(values, same(POINTS[:10]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cm.UniformBins([0, -np.inf], [1, 1], 3), "dimension 1 goes from -inf to 1"),
        (lambda: cm.UniformBins([0, 2], [1, 1], 3), "dimension 1 goes from 2 to 1"),
        (lambda: cm.UniformBins([0, 0], [1, 1], [3]), "1 numbers of bins for 2 dimensions"),
        (lambda: cm.UniformBins([0], [1], 0), "at least 1; got 0"),
        (lambda: cm.UniformBins([0], [1], 2)(POINTS), "bins for 1 dimensions were given .* with 2"),
        (lambda: cm.OneHot(0), "at least 1; got 0"),
        (lambda: cm.RandomFourier(2, 3, seed=0, scale=0.0), "must be positive"),
        (lambda: cm.RandomFourier(3, 3, seed=0)(POINTS), "of 3 dimensions were given"),
        (
            lambda: cm.FeatureFunction(lambda o: o, 3)(POINTS),
            r"gives shape \(2,\); expected \(3,\)",
        ),
    ],
)
def test_mistakes(make, message) -> None:
    with pytest.raises(ExperienceError, match=message):
        make()


def test_norms_can_be_declared() -> None:
    assert cm.FeatureFunction(lambda o: o, 2, norms=(2.0, 1.0, False)).norms == Norms(2, 1, False)
