r"""Two convex sets that are closed downwards, and how far apart they are.

*Inner*: {v : v <= some mixture of the points p_j}. *Outer*: {v : <w_j, v> <= u_j for all j}, w_j >= 0, the unit
vectors among them. Where the inner set lies in the outer one, the least t such that every outer v has an inner
point at or above v - t (1, ..., 1) is

    max over outer vertices v and inner facets (w, b) of  <w, v> - b,     w >= 0, sum w = 1,

for v - t (1, ..., 1) is inner if and only if <w, v> - t <= b at every facet, and the largest of these is
convex in v and falls with every coordinate that does. The facet where it is attained is the direction in which
least is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import ConvexHull

FLAT = 1e-9  # the size at which a coefficient of a facet counts as zero


class Facets(NamedTuple):
    """{v : <normal_f, v> <= offset_f}, one row each; normals are not negative and sum to one."""

    normals: np.ndarray
    offsets: np.ndarray


def inner_facets(points: np.ndarray) -> Facets:
    """The facets of what lies at or below mixtures of the points, (n, k)."""
    # Whatever lies below a point belongs to the set; one step down along each axis is enough, for facets
    # with a negative normal, those of where the steps end, are left out.
    size = points.shape[1]
    below = (points[:, None, :] - np.eye(size)[None]).reshape(-1, size)
    equations = ConvexHull(np.vstack([points, below])).equations
    normals = equations[(equations[:, :-1] > -FLAT).all(axis=1)]
    weights = np.maximum(normals[:, :-1], 0.0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    # Offsets are computed anew: Qhull's are those of facets that it merged.
    return Facets(weights, (weights @ points.T).max(axis=1))


def outer_vertices(weights: np.ndarray, bounds: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The vertices of {v : <w_j, v> <= u_j}, by polarity about a point strictly inside.

    There the half-spaces are points w_j / (u_j - <w_j, inside>), the half-space at infinity is zero, and the
    facets of their hull that do not pass through zero are the vertices.
    """
    polar = weights / (bounds - weights @ inside)[:, None]
    equations = ConvexHull(np.vstack([np.zeros(inside.size), polar])).equations
    proper = equations[equations[:, -1] < -FLAT]
    return np.asarray(inside - proper[:, :-1] / proper[:, -1:])


def farthest(vertices: np.ndarray, inner: Facets) -> tuple[np.ndarray, np.ndarray]:
    """For every outer vertex its distance from the inner set, and the facet that is farthest from it."""
    excess = vertices @ inner.normals.T - inner.offsets
    return excess.max(axis=1), excess.argmax(axis=1)
