r"""Uniform numbers by counting: those of iteration t depend on the key and on t alone.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), the generator
behind ``jax.random``, written out so that a compiler makes one short loop of it; the tests compare it with
JAX's bit by bit. On a CPU, JAX's own, which loops over the rounds, takes a quarter as long as an iteration.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def key_words(key: Array) -> Array:
    """The two words of a key of ``jax.random``."""
    return jax.random.key_data(key)


def threefry(words: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Two random words for each pair of counters."""
    schedule = (words[0], words[1], words[0] ^ words[1] ^ PARITY)
    first, second = first + schedule[0], second + schedule[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            first = first + second
            second = (second << rotation) | (second >> (32 - rotation))
            second = second ^ first
        first = first + schedule[(turn + 1) % 3]
        second = second + schedule[(turn + 2) % 3] + np.uint32(turn + 1)
    return first, second


def uniforms(words: Array, t: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Numbers in [0, 1) with 24 random bits for iteration t."""
    half = (int(np.prod(shape)) + 1) // 2
    # First words, then second ones. Every number computes both of its pair and takes one: twice the work, but
    # done in vectors, which joining two arrays is not.
    place = jnp.arange(int(np.prod(shape)), dtype=jnp.uint32).reshape(shape)
    first, second = threefry(words, jnp.full(shape, t, jnp.uint32), place % half)
    bits = jnp.where(place < half, first, second) >> 8
    return bits.astype(dtype) * dtype(2.0**-24)
