"""How near two computations of the same number can be expected to be."""

from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike

__all__ = ["coarsest_dtype", "tol"]


def tol(dtype: DTypeLike, n_ops: int = 1, cond: float = 1.0) -> float:
    """Give the relative tolerance for results that differ by rounding only.

    Each of `n_ops` operations rounds by at most half a unit roundoff `eps`, each result of a
    comparison has its own, and the problem multiplies an error by at most `cond`: together
    `n_ops * cond * eps`. It is the worst case; a random walk would be its square root.

    Args:
        dtype: The floating dtype in which both results were computed.
        n_ops: Number of operations on the longest chain from an input to the result.
        cond: Condition number of the result with respect to what is rounded on the way.

    Raises:
        TypeError: If `dtype` is not a real floating dtype.

    Example:
        >>> tol("float64", n_ops=100) < 1e-13 < 1e-6 < tol("float32", n_ops=100)
        True
    """
    resolved = np.dtype(dtype)
    if not jax.numpy.issubdtype(resolved, jax.numpy.floating):
        raise TypeError(
            f"`dtype`: expected a real floating dtype, got {resolved.name}. Compare integers and"
            " booleans exactly, and complex numbers by the dtype of their parts."
        )
    return float(n_ops * cond * jax.numpy.finfo(resolved).eps)


def coarsest_dtype(tree: Any) -> np.dtype[Any]:
    """The floating dtype with the largest unit roundoff among the leaves of `tree`."""
    dtypes = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(tree)}
    return max(dtypes, key=lambda dtype: float(jax.numpy.finfo(dtype).eps))
