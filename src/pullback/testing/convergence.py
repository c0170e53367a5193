"""The order of convergence of a sequence of errors."""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["convergence_order", "fit_slope"]


def convergence_order(
    errors: ArrayLike,
    steps: ArrayLike,
    *,
    scale: float = 1.0,
    dtype: str = "float64",
    min_points: int = 3,
) -> float:
    """Fit the order p of `error = C * step**p` by least squares on logarithms.

    Errors below 100 units of rounding of the solution are dropped, since they no longer fall.

    Args:
        errors: Size of the error at each step size.
        steps: The step sizes, in any order; the finest ones should be in the asymptotic range.
        scale: Size of the solution, of which rounding is a fraction.
        dtype: Floating dtype in which the solution was computed.
        min_points: How many errors must remain.

    Returns:
        The slope p.

    Raises:
        ValueError: If shapes differ, a step or an error is not positive and finite, or fewer than
            `min_points` errors are above rounding.

    Example:
        >>> round(convergence_order([4e-2, 1e-2, 2.5e-3], [0.4, 0.2, 0.1]), 6)
        2.0
    """
    error, step = np.asarray(errors, np.float64), np.asarray(steps, np.float64)
    if error.shape != step.shape or error.ndim != 1:
        raise ValueError(
            "`errors` and `steps`: expected two lists of the same length, got shapes"
            f" {error.shape} and {step.shape}."
        )
    if not (np.isfinite(step).all() and (step > 0).all() and np.isfinite(error).all()):
        raise ValueError(
            f"`errors` and `steps`: expected finite numbers and positive steps, got {error} and"
            f" {step}. A solve that failed has no error to fit."
        )
    floor = 100 * float(np.finfo(dtype).eps) * scale
    kept = error > floor
    if kept.sum() < min_points:
        raise ValueError(
            f"`errors`: expected at least {min_points} above rounding ({floor:.1e}), got"
            f" {int(kept.sum())} of {error.size}: {error}. Use larger steps."
        )
    return fit_slope(step[kept], error[kept])


def fit_slope(steps: np.ndarray, values: np.ndarray) -> float:
    """Slope of the least-squares line through log(values) over log(steps)."""
    return float(np.polyfit(np.log2(steps), np.log2(values), 1)[0])
