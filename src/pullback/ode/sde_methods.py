"""The methods for stochastic differential equations that are a formula; tables are in `sri`.

In every formula y, f, g are state, drift and diffusion at the start of the step, h is its size
and dW the increment of the Wiener processes; |h| where the size stands for their variance.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from pullback.core.typing import Array
from pullback.ode.noise import NoiseKind
from pullback.ode.stochastic import Calculus, StochasticMethod

__all__ = ["SIEA", "EulerMaruyama", "Milstein", "StratonovichHeun"]


@dataclasses.dataclass(frozen=True)
class EulerMaruyama(StochasticMethod):
    """The Euler-Maruyama method: strong order 1/2 (1 for additive noise), weak order 1."""

    strong_order: ClassVar[float] = 0.5
    weak_order: ClassVar[float] = 1.0
    n_drifts: ClassVar[int] = 1
    reference: ClassVar[str] = "[KP92] eq. (10.2.4)"

    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return f h + g dW."""
        dw = system.increments(h).dw
        return h * system(t, y) + system.spread(system.diffusion(t, y), dw)


@dataclasses.dataclass(frozen=True)
class Milstein(StochasticMethod):
    """The Milstein method: strong and weak order 1.

    The derivative of the diffusion comes from forward mode. With diagonal noise, component i of
    the diffusion must depend on no other component of the state than i.
    """

    noise_kinds: ClassVar[tuple[NoiseKind, ...]] = ("diagonal", "scalar")
    strong_order: ClassVar[float] = 1.0
    weak_order: ClassVar[float] = 1.0
    n_drifts: ClassVar[int] = 1
    reference: ClassVar[str] = "[KP92] eq. (10.3.1)"

    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return f h + g dW + g' g (dW^2 - |h|) / 2."""
        size, dw, _ = system.increments(h)
        g = system.diffusion(t, y)
        g_along_g = jax.jvp(lambda x: system.diffusion(t, x), (y,), (g,))[1]
        return h * system(t, y) + g * dw + g_along_g * (0.5 * (dw * dw - _length(h, size)))


@dataclasses.dataclass(frozen=True)
class SIEA(StochasticMethod):
    """The stochastic improved Euler method A: weak order 2, strong order 1, no derivatives.

    With diagonal noise, component i of the diffusion must depend on no other component of the
    state than i.
    """

    noise_kinds: ClassVar[tuple[NoiseKind, ...]] = ("diagonal", "scalar")
    strong_order: ClassVar[float] = 1.0
    weak_order: ClassVar[float] = 2.0
    n_drifts: ClassVar[int] = 2
    reference: ClassVar[str] = "[TV02]; [KP92] eq. (15.1.1)"

    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return (f + f1) h/2 + (2 g + g+ + g-) dW/4 + (g+ - g-) (dW^2 - |h|) / (4 |h|^(1/2)).

        f1 is the drift after an Euler-Maruyama step; g+ and g- are the diffusion after an Euler
        step of the drift alone, shifted by g |h|^(1/2) up and down.
        """
        size, dw, _ = system.increments(h)
        root = jnp.sqrt(size)
        f, g, t1 = system(t, y), system.diffusion(t, y), t + h
        moved = y + h * f
        f1 = system(t1, moved + g * dw)
        shift = g * root
        up, down = system.diffusion(t1, moved + shift), system.diffusion(t1, moved - shift)
        area = (dw * dw - _length(h, size)) * (0.25 / root)
        return (0.5 * h) * (f + f1) + (0.25 * dw) * (2.0 * g + up + down) + area * (up - down)


@dataclasses.dataclass(frozen=True)
class StratonovichHeun(StochasticMethod):
    """Heun's method for Stratonovich equations.

    Weak order 1, strong order 1 where the noise commutes (diagonal, scalar, additive) and 1/2
    elsewhere.
    """

    calculus: ClassVar[Calculus] = "Stratonovich"
    strong_order: ClassVar[float] = 1.0
    weak_order: ClassVar[float] = 1.0
    n_drifts: ClassVar[int] = 2
    reference: ClassVar[str] = "[Rum82] the Heun scheme"

    def increment(self, system: Any, t: Array, y: Array, h: Array) -> Array:
        """Return (f + f1) h/2 + (g + g1) dW/2, f1 and g1 after an Euler-Maruyama step."""
        dw = system.increments(h).dw
        f, g, t1 = system(t, y), system.diffusion(t, y), t + h
        y1 = y + h * f + system.spread(g, dw)
        return (0.5 * h) * (f + system(t1, y1)) + system.spread(
            0.5 * (g + system.diffusion(t1, y1)), dw
        )


def _length(h: Array, size: Array) -> Array:
    """Return |h| from a size that is one where h is zero."""
    return jnp.where(h == 0, 0.0, size)
