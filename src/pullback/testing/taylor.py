"""The Taylor-remainder test: a gradient matches the function it belongs to."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pullback.ensemble.frozen_mesh import record_meshes
from pullback.testing.convergence import fit_slope
from pullback.testing.floating import FloatFunction, floating_part, inner, like, random_like
from pullback.testing.tolerances import coarsest_dtype

__all__ = ["TaylorResult", "taylor_test"]

STEPS = tuple(2.0**-k for k in range(4, 15))
_FIT_POINTS = 6  # the smallest steps above rounding: nearest to the limit, most sensitive to errors
_MIN_POINTS = 3
_NAMES = ("|f(x+hv) - f(x)|", "|... - h g.v|", "|... - h^2/2 v.Hv|")

Replay = Callable[[Callable[[Any], Any], Any], Callable[[Any], Any]]


class TaylorResult(NamedTuple):
    """Remainders of the Taylor expansion along one direction, and how fast they fall.

    Attributes:
        steps: The steps h, largest first.
        remainders: One row for each order: order 1 is the plain difference, order 2 takes the
            gradient's part away, order 3 the Hessian's too.
        slopes: The fitted slope of each row; infinity where the remainder is rounding only,
            which is what an exact expansion (a linear or quadratic function) gives.
        noise: Remainders below this were taken for rounding and not fitted.
        directional: The derivative along the direction that the gradient gives.
    """

    steps: NDArray[np.float64]
    remainders: NDArray[np.float64]
    slopes: tuple[float, ...]
    noise: float
    directional: float

    def table(self) -> str:
        """Lay out the remainders with the local slope from one step to the next."""
        lines = ["  h           " + "".join(f"{n:>20} slope" for n in _NAMES[: len(self.slopes)])]
        for i, h in enumerate(self.steps):
            cells = [f"{row[i]:20.3e} {self._local(row, i)}" for row in self.remainders]
            lines.append(f"  {h:<12.3e}" + "".join(cells))
        lines.append("  fitted      " + "".join(f"{slope:26.3f}" for slope in self.slopes))
        return "\n".join([*lines, f"  (- marks what is below the rounding level {self.noise:.1e})"])

    def _local(self, row: NDArray[np.float64], i: int) -> str:
        if i == 0:
            return " " * 5
        if not min(row[i], row[i - 1]) > self.noise:
            return "    -"
        return f"{np.log2(row[i - 1] / row[i]) / np.log2(self.steps[i - 1] / self.steps[i]):5.2f}"


def taylor_test(
    f: Callable[[Any], Any],
    x: Any,
    direction: Any = None,
    *,
    gradient: Any = None,
    hessian_vector: Any = None,
    order: Literal[2, 3] = 2,
    mode: Literal["reverse", "forward"] = "reverse",
    steps: ArrayLike = STEPS,
    slope_tolerance: float = 0.1,
    noise: float | None = None,
    mesh: Literal["free", "frozen"] | None = None,
    replay: Replay | None = None,
    seed: int = 0,
) -> TaylorResult:
    """Assert that a gradient of `f` at `x` is right by the slopes of the Taylor remainders.

    Along a direction v the difference f(x+hv) - f(x) falls like h, and like h^2 once the
    gradient's part is taken away, like h^3 once the Hessian's is. A gradient that is wrong, even
    by one percent, leaves a remainder of slope 1. Unlike a finite difference against a tolerance
    this needs no idea of how accurate a difference is. Leaves of `x` that are not floating are
    held fixed.

    A solver with step control is not a smooth function: a difference of it measures the
    controller. With `mesh="frozen"` every `pullback.solve` in `f` takes the steps that it takes
    at `x`, wherever `f` is evaluated: the first one starts at t0 and the last one ends at t1 as
    these move, the others end where they did. JAX's own derivatives are taken on this mesh too.
    It is the mesh of the plain solve, so that the gradient is the one of
    `DiscreteAdjoint(resolve=False)`. By default a gradient has a finer mesh of its own, from
    which it differs within the tolerance: given as `gradient`, it would fail.

    The mesh can be frozen through `jit`, `vmap`, loops and derivatives in `f`, and for any number
    of solves of problems and ensembles; `f` then runs without `jit`, that is slower. A solve
    inside `jax.checkpoint` or `pullback.value_and_grad` is an error, and so is a `saveat` that
    moves with `x`, or a t1 that moves while more than the end is saved: such rows have a
    derivative by another rule (see the conventions). For another solver with step control,
    `replay(f, x)` returns `f` with the steps that it takes at `x`; it is used for the differences
    only.

    Args:
        f: A function from a pytree to a real scalar.
        x: The point.
        direction: v, a pytree like `x`; by default normal numbers of the size of each leaf.
        gradient: The gradient to check, a pytree like `x`; by default JAX's, by `mode`.
        hessian_vector: The Hessian times v, a pytree like `x`, for `order=3`; by default JAX's,
            forward over reverse.
        order: Highest remainder to check.
        mode: How JAX's own gradient is taken where none is given: `jax.vjp` or `jax.jvp`.
        steps: The steps h.
        slope_tolerance: How far a slope may be from a whole number.
        noise: Size of the rounding error of `f`; by default 100 units of rounding of the largest
            value that `f` takes.
        mesh: `"frozen"` repeats the steps taken at `x`, of this package's solves or as `replay`
            says; `"free"` takes plain differences; by default frozen exactly when `replay` is
            given.
        replay: Takes `f` and `x` and returns the function to take differences of.
        seed: Seed of the direction.

    Returns:
        The remainders and slopes; `print(result.table())` shows them.

    Raises:
        AssertionError: If a slope is off, or if `f` hardly changes along v so that nothing was
            checked, with the table.
        ValueError: If an argument does not fit `x`, if `f(x)` is not a scalar, or if a mesh is to
            be frozen and there is none, or it cannot be used where `f` is evaluated.
        NotImplementedError: If the mesh to be frozen is inside something that traces `f`.

    Example:
        >>> import jax.numpy as jnp
        >>> result = taylor_test(lambda x: jnp.sum(jnp.sin(x)), jnp.arange(1.0, 4.0))
        >>> len(result.slopes)
        2
    """
    _require("mode", mode, ("reverse", "forward"))
    _require("mesh", mesh, (None, "free", "frozen"))
    _require("order", order, (2, 3))
    plain, point = floating_part(f, x)
    difference_of = plain
    if replay is not None and mesh != "free":
        difference_of, _ = floating_part(replay(f, x), x)
    elif mesh == "frozen":
        difference_of = plain = record_meshes(plain, point).replay(plain)
    v = _direction(point, direction, seed)
    known = _derivatives(plain, point, v, order, mode, gradient, hessian_vector)
    h = np.sort(np.asarray(steps, np.float64))[::-1]
    values, remainders = _remainders(difference_of, point, v, h, known)
    if noise is None:
        noise = 100 * float(jnp.finfo(coarsest_dtype(point)).eps) * float(np.abs(values).max())
    slopes = tuple(_slope(h, row, noise) for row in remainders)
    result = TaylorResult(h, remainders, slopes, noise, known.directional)
    _check(result, slope_tolerance)
    return result


class _Derivatives(NamedTuple):
    """What is taken away from the difference: g.d and d.Hv/2 for a displacement d = h v."""

    gradient: Sequence[Any] | None  # None in forward mode, where only g.v is known
    directional: float
    hessian_vector: Sequence[Any] | None


def _require(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}`: expected one of {expected}, got {value!r}.")


def _direction(point: list[jax.Array], direction: Any, seed: int) -> list[jax.Array]:
    if direction is None:
        return random_like(point, seed, scaled=True)
    v = like("direction", direction, point)
    if not inner(v, v)[0] > 0:
        raise ValueError("`direction`: expected one that is not zero, got only zeros or NaN.")
    return v


def _derivatives(
    f: FloatFunction,
    point: list[jax.Array],
    v: list[jax.Array],
    order: int,
    mode: str,
    gradient: Any,
    hessian_vector: Any,
) -> _Derivatives:
    """Collect the given derivatives, and JAX's own for those that are not given."""

    def scalar(leaves: list[jax.Array]) -> jax.Array:
        result = f(leaves)
        if len(result) != 1 or result[0].shape != ():
            raise ValueError(
                "`f`: expected a function with one real scalar as its result, got floating leaves"
                f" of shapes {[leaf.shape for leaf in result]}. Sum or weight them first."
            )
        return result[0]

    hv = None
    if order == 3:
        hv = (
            jax.jvp(jax.grad(scalar), (point,), (v,))[1]
            if hessian_vector is None
            else like("hessian_vector", hessian_vector, point)
        )
    if gradient is None and mode == "forward":
        return _Derivatives(None, float(jax.jvp(scalar, (point,), (v,))[1]), hv)
    g = jax.grad(scalar)(point) if gradient is None else like("gradient", gradient, point)
    return _Derivatives(g, inner(g, v)[0], hv)


def _remainders(
    f: FloatFunction,
    point: list[jax.Array],
    v: list[jax.Array],
    steps: NDArray[np.float64],
    known: _Derivatives,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values of f along the direction, and the size of each order's remainder."""
    start = [np.asarray(leaf).astype(np.float64) for leaf in point]
    values = [float(f(point)[0])]
    rows: list[list[float]] = []
    for h in steps:
        moved = [(p + h * np.asarray(q)).astype(q.dtype) for p, q in zip(start, v, strict=True)]
        values.append(float(f([jnp.asarray(leaf) for leaf in moved])[0]))
        # x + h v is rounded: the displacement that really took place is what the gradient sees.
        shift = [m.astype(np.float64) - p for m, p in zip(moved, start, strict=True)]
        row = [values[-1] - values[0]]
        linear = (
            h * known.directional if known.gradient is None else inner(known.gradient, shift)[0]
        )
        row.append(row[0] - linear)
        if known.hessian_vector is not None:
            row.append(row[1] - 0.5 * h * inner(known.hessian_vector, shift)[0])
        rows.append(row)
    return np.asarray(values), np.abs(np.asarray(rows)).T


def _slope(steps: NDArray[np.float64], row: NDArray[np.float64], noise: float) -> float:
    """Fitted slope over the smallest steps above rounding; infinity if nothing is above it."""
    if not np.isfinite(row).all():
        return float("nan")
    kept = row > noise
    if kept.sum() < _MIN_POINTS:
        return float("inf")
    return fit_slope(steps[kept][-_FIT_POINTS:], row[kept][-_FIT_POINTS:])


def _check(result: TaylorResult, tolerance: float) -> None:
    first = result.slopes[0]
    if np.isinf(first):
        raise AssertionError(
            "taylor_test: `f` does not change along the direction beyond rounding, so nothing was"
            f" checked. Choose another `direction`, larger `steps` or a smaller `noise`.\n"
            f"{result.table()}"
        )
    for order, slope in enumerate(result.slopes, start=1):
        if abs(slope - order) <= tolerance or (
            order > 1 and _falls_faster(slope, order, tolerance)
        ):
            continue
        why = (
            "`f` is not smooth there, or the direction hardly changes it"
            if order == 1
            else f"the {'gradient' if order == 2 else 'Hessian-vector product'} is wrong, or `f`"
            " is rougher than `noise` says"
        )
        raise AssertionError(
            f"taylor_test: the remainder of order {order} falls with slope {slope:.3f}, expected"
            f" {order} within {tolerance}: {why}.\n{result.table()}"
        )


def _falls_faster(slope: float, order: int, tolerance: float) -> bool:
    """Tell whether a remainder falls like a later term, where its own term vanishes."""
    if np.isinf(slope):
        return True
    return slope > order and abs(slope - round(slope)) <= tolerance
