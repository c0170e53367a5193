"""What a spawned worker process runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from native import kernels
from pullback import native


def compute(n: int) -> float:
    """Return the sum of a kernel's results."""
    jax.config.update("jax_enable_x64", True)
    call = kernels.caller(native.register_kernel(kernels.double_plus()))
    return float(call(jnp.arange(float(n)), jnp.float64(3.0)).sum())
