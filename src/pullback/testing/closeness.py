"""Comparison of pytrees of arrays that says where they differ, and by how much."""

from typing import Any

import jax
import numpy as np

__all__ = ["assert_close"]


def assert_close(actual: Any, desired: Any, *, rtol: float, atol: float, err_msg: str = "") -> None:
    """Assert `|actual - desired| <= atol + rtol * |desired|` for every element of two pytrees.

    Shapes must agree without broadcasting; dtypes may differ. NaN equals NaN and an infinity
    equals itself. Both tolerances must be given: see `tol` for where to take them from.

    Args:
        actual: A pytree of arrays.
        desired: A pytree of the same structure.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        err_msg: What was compared, for the message.

    Raises:
        AssertionError: If structures or shapes differ, or an element is too far off: each leaf
            that is wrong, how many elements, the worst one's place and values, the largest
            absolute and relative error, and the error in units of the tolerance.

    Example:
        >>> assert_close({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-9]}, rtol=1e-8, atol=0.0)
    """
    found, found_structure = jax.tree_util.tree_flatten_with_path(actual)
    wanted, wanted_structure = jax.tree_util.tree_flatten_with_path(desired)
    head = f"{err_msg}: " if err_msg else ""
    if found_structure != wanted_structure:
        raise AssertionError(
            f"{head}structures differ:\n  actual  {found_structure}\n  desired {wanted_structure}"
        )
    reports: list[str] = []
    for (path, a), (_, d) in zip(found, wanted, strict=True):
        report = _leaf_report(np.asarray(a), np.asarray(d), rtol, atol)
        if report is not None:
            reports.append(f"  {jax.tree_util.keystr(path) or 'array'}: {report}")
    if reports:
        raise AssertionError(
            f"{head}not close (rtol={rtol:.3g}, atol={atol:.3g}):\n" + "\n".join(reports)
        )


def _leaf_report(actual: np.ndarray, desired: np.ndarray, rtol: float, atol: float) -> str | None:
    """Describe how two arrays differ, or return None where they are close."""
    if actual.shape != desired.shape:
        return f"shapes differ: actual {actual.shape}, desired {desired.shape}"
    wide = np.complex128 if np.iscomplexobj(actual) or np.iscomplexobj(desired) else np.float64
    a, d = np.atleast_1d(actual).astype(wide), np.atleast_1d(desired).astype(wide)
    same = (a == d) | (np.isnan(a) & np.isnan(d))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(same, 0.0, np.abs(a - d))
        allowed = atol + rtol * np.abs(d)
        # Where one side only is NaN or infinite no tolerance helps.
        error = np.where(~same & ~(np.isfinite(a) & np.isfinite(d)), np.inf, error)
        units = np.where(error == 0, 0.0, error / allowed)
        relative = np.where(error == 0, 0.0, error / np.abs(d))
    wrong = ~same & (~(error <= allowed) | np.isinf(error))
    if not wrong.any():
        return None
    worst = np.unravel_index(int(np.argmax(units)), units.shape)
    place = tuple(int(i) for i in worst) if actual.ndim else ()
    return (
        f"{int(wrong.sum())} of {wrong.size} elements; worst at {place}:"
        f" actual {a[worst]!s}, desired {d[worst]!s}, error {units[worst]:.3g} x tolerance;"
        f" largest absolute error {error.max():.3g}, relative {relative.max():.3g}"
    )
