"""The noise of a stochastic differential equation: increments without state or memory.

The increments of a step are a function of the trajectory's key and of the number of the step, so
they are the same in any order, on any executor, and again in a backward sweep. Channel c of a step
does not depend on how many channels there are.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from pullback.core.typing import Array
from pullback.ode.flat_function import FlatFunction
from pullback.ode.gaussian import normal_pair
from pullback.ode.philox import philox

__all__ = ["NOISE_KINDS", "Increments", "NoiseKind", "NoiseSpec", "normals"]

NoiseKind = Literal["diagonal", "scalar", "general"]
NOISE_KINDS: tuple[NoiseKind, ...] = ("diagonal", "scalar", "general")

_WORDS = 4  # of one block of the generator, each a channel


class Increments(NamedTuple):
    """Of the Wiener processes over one step.

    Attributes:
        size: Length of the step, positive; one where it is zero and the increments are too.
        dw: Increments, `(n_noise,)`.
        dz: Independent of them and distributed like them, `(n_noise,)`; None unless asked for.
    """

    size: Array
    dw: Array
    dz: Array | None


@dataclasses.dataclass(frozen=True)
class NoiseSpec:
    """How noise enters an equation: static, and equal by content.

    Attributes:
        diffusion: What multiplies the increments: `(n,)`, for general noise `(n, n_noise)`.
        kind: "diagonal" (each component of the state has a Wiener process of its own), "scalar"
            (all share one) or "general".
        n_noise: Number of Wiener processes.
        key_place: Which entry of theta is the trajectory's key, two uint32 words.
        is_additive: Whether the diffusion does not depend on the state.
    """

    diffusion: FlatFunction
    kind: NoiseKind
    n_noise: int
    key_place: int
    is_additive: bool

    def increments(
        self, theta: tuple[Array, ...], index: Array, h: Array, *, with_dz: bool = False
    ) -> Increments:
        """Return the increments over step number `index`, whose size is h.

        Differentiation:
            With respect to h, the normal numbers held fixed.
        """
        is_empty = h == 0
        size = jnp.where(is_empty, 1.0, jnp.abs(h))
        count = 2 * self.n_noise if with_dz else self.n_noise
        drawn = jnp.where(is_empty, 0.0, normals(theta[self.key_place], index, size, count))
        if not with_dz:
            return Increments(size, drawn, None)
        return Increments(size, drawn[: self.n_noise], drawn[self.n_noise :])

    def spread(self, diffusion: Array, dw: Array) -> Array:
        """Return what the increments do to the state, for a value of the diffusion."""
        if self.kind != "general":
            return diffusion * dw
        if self.n_noise > _LARGEST_UNROLLED:
            return diffusion @ dw
        total = diffusion[:, 0] * dw[0]
        for j in range(1, self.n_noise):
            total = total + diffusion[:, j] * dw[j]
        return total


# So many products are added up one by one, which keeps a small state in registers.
_LARGEST_UNROLLED = 16


def normals(key: Array, index: Array, variance: Array, count: int) -> Array:
    """Return `count` independent normal numbers of mean zero, `(count,)`.

    Args:
        key: Two uint32 words.
        index: Number of the step.
        variance: Of each, positive; its dtype is that of the result.
        count: How many.
    """
    zero = jnp.asarray(np.uint32(0))
    n_blocks = -(-count // _WORDS)
    step, block = index.astype(np.uint32), zero
    if n_blocks > 1:
        step, block = step[None], jnp.arange(n_blocks, dtype=np.uint32)
    words = philox((key[0], key[1]), (step, block, zero, zero))
    one = _opaque_one(index, variance.dtype)
    wanted = min(count, _WORDS)
    found = [
        z
        for pair in range(-(-wanted // 2))
        for z in normal_pair(words[2 * pair], words[2 * pair + 1], variance, wanted - 2 * pair, one)
    ]
    # Channel 4 b + i is number i of block b.
    return jnp.stack(found, axis=-1).reshape(-1)[:count]


def _opaque_one(index: Array, dtype: np.dtype) -> Array:
    """Return one, in a way that LLVM sees through and XLA does not.

    XLA takes a division for expensive, and computes it once; what it takes for cheap it computes
    again for every use, the whole generator included. By the time when LLVM has removed the
    division, that is decided.
    """
    is_zero = (index | jnp.asarray(np.int32(1))) == 0
    return jnp.where(is_zero, 2.0, 1.0).astype(dtype)
