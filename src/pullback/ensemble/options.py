"""The options of `solve` that are numbers: tolerances, step sizes, limits.

Each function checks what is known before tracing and returns an array for the lane program. A value
that is only known in a trace is checked there and becomes the status `invalid_input`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pullback.ensemble.dtypes import cast, dtype_of, known
from pullback.ensemble.ensemble_problem import EnsembleProblem
from pullback.ensemble.leaf import Leaf, Members, is_array, named_leaves
from pullback.ensemble.sde_problem import Problem, SDEProblem
from pullback.ensemble.second_order_problem import check_mechanical
from pullback.ode import (
    DiscreteAdjoint,
    MassMatrix,
    Method,
    NoiseSpec,
    PIController,
    StepController,
    StochasticMethod,
    make_mass_matrix,
)

# Below this many units in the last place an error estimate is rounding noise.
_RTOL_EPS = 4


def checked_instance(name: str, value: Any, kind: type, example: str) -> Any:
    """Return `value` if it is of class `kind`; otherwise raise and show how to write it."""
    if isinstance(value, kind):
        return value
    if isinstance(value, type) and issubclass(value, kind):
        example = f"pb.{value.__name__}()"
    raise TypeError(
        f"`{name}` must be an instance of {kind.__name__}, but {value!r} arrived; write {example}."
    )


def checked_controller(controller: Any) -> StepController:
    """Return the step size control of adaptive solves."""
    if controller is None:
        return PIController()
    return checked_instance("controller", controller, StepController, "pb.PIController()")


def checked_adjoint(adjoint: Any) -> DiscreteAdjoint:
    """Return the options of reverse mode."""
    checked_instance("adjoint", adjoint, DiscreteAdjoint, "pb.DiscreteAdjoint()")
    return adjoint


def checked_adaptive(adaptive: Any, dt: Any, method: Any) -> bool:
    """Return whether the step size is chosen by the error estimate of `method`."""
    has_estimate = method.has_error_estimate
    name = type(method).__name__
    if adaptive is None:
        adaptive = has_estimate and dt is None
    if not isinstance(adaptive, (bool, np.bool_)):
        raise TypeError(f"`adaptive` must be True, False or None, but {adaptive!r} arrived.")
    if adaptive and not has_estimate:
        raise ValueError(
            f"`adaptive`=True needs an error estimate, which {name} does not have; pass a step "
            "size dt=, or use a method with an estimate, such as pb.Tsit5()."
        )
    if not adaptive and dt is None:
        why = "`adaptive`=False" if has_estimate else f"{name} has no error estimate"
        raise ValueError(
            f"`dt` is missing: {why}, so the step size is fixed and must be given; pass dt=, for "
            "example dt=0.01."
        )
    return bool(adaptive)


def check_fixed_steps(adaptive: bool, **control: Any) -> None:
    """Raise where an option of adaptive solves is given with fixed steps."""
    for name, value in control.items():
        if not adaptive and value is not None:
            raise ValueError(
                f"`{name}` has no effect on fixed steps, but {value!r} arrived; leave it out, or "
                "let the error estimate choose the steps, with adaptive=True and a method that has "
                "one, such as pb.Tsit5()."
            )


def checked_method(method: Any, problem: Any) -> Method:
    """Return `method`; raise where one of method and problem is stochastic and the other is not."""
    checked_instance("method", method, Method, "pb.Tsit5()")
    if isinstance(problem, EnsembleProblem):
        problem = problem.problem
    is_stochastic = isinstance(problem, SDEProblem)
    if is_stochastic and not isinstance(method, StochasticMethod):
        raise TypeError(
            f"`method` {method.name} is for ordinary differential equations, but an SDEProblem "
            "arrived; use a stochastic method, such as pb.EulerMaruyama()."
        )
    if isinstance(method, StochasticMethod) and isinstance(problem, Problem) and not is_stochastic:
        raise TypeError(
            f"`method` {method.name} is for stochastic differential equations, but an ordinary "
            f"one arrived, {type(problem).__name__}; use pb.Tsit5(), or "
            "pb.SDEProblem(drift, diffusion, y0, t_span, params)."
        )
    check_mechanical(method, problem)
    return method


def check_noise(method: Method, noise: NoiseSpec | None) -> None:
    """Raise where a stochastic method does not take the problem's noise."""
    if noise is None or not isinstance(method, StochasticMethod):
        return
    if noise.kind not in method.noise_kinds:
        takes = " or ".join(map(repr, method.noise_kinds))
        raise ValueError(
            f"`method` {method.name} takes {takes} noise, but the problem has "
            f"`noise`={noise.kind!r}; use pb.EulerMaruyama(), pb.StratonovichHeun() or, if the "
            "diffusion does not depend on the state, pb.SRA1()."
        )
    if method.is_additive_only and not noise.is_additive:
        raise ValueError(
            f"`method` {method.name} is for additive noise, but `diffusion` {noise.diffusion.name} "
            "uses the state `y`; use pb.SRIW1() (diagonal or scalar noise) or pb.EulerMaruyama()."
        )


def checked_initialization(initialization: Any) -> Any:
    """Return how algebraic variables start."""
    if initialization not in ("brown", "check"):
        raise ValueError(
            '`initialization` must be "brown" (solve for the algebraic variables) or "check" '
            f"(they must be consistent), but {initialization!r} arrived."
        )
    return initialization


def checked_mass(matrix: Any, n: int, method: Method) -> MassMatrix | None:
    """Return the mass matrix for `method`; None for the identity."""
    if matrix is None:
        return None
    mass = make_mass_matrix(matrix, n)
    if mass is not None and not method.takes_mass:
        raise ValueError(
            f"`method` {method.name} is explicit, at least in part, and cannot take a "
            "`mass_matrix`; use a method for stiff problems, such as pb.Rodas5P(), or multiply the "
            "vector field by its inverse."
        )
    return mass


class Numbers(NamedTuple):
    """The numbers of a solve that every trajectory shares, cast to the state's dtype.

    Attributes:
        dt: step size, or first step; NaN chooses it automatically.
        rtol: relative tolerance, a scalar or one number per component.
        atol: absolute tolerance, likewise.
        dt_max: largest step.
        dt_min: smallest step.
    """

    dt: Any
    rtol: Any
    atol: Any
    dt_max: Any
    dt_min: Any


def checked_numbers(
    members: Members, adaptive: bool, dt: Any, rtol: Any, atol: Any, dt_max: Any, dt_min: Any
) -> Numbers:
    """Return step sizes and tolerances for the trajectories of `members`, already cast."""
    dtype = members.dtype
    largest = np.asarray(np.inf, dtype) if dt_max is None else checked_step("dt_max", dt_max, dtype)
    least = np.asarray(0.0, dtype) if dt_min is None else checked_step("dt_min", dt_min, dtype)
    low, high = known(least), known(largest)
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"`dt_min` must not be larger than `dt_max`, but {low:.6g} and {high:.6g} arrived."
        )
    return Numbers(
        dt=np.asarray(np.nan, dtype) if dt is None else checked_step("dt", dt, dtype),
        rtol=checked_tolerance("rtol", rtol, members, adaptive),
        atol=checked_tolerance("atol", atol, members, adaptive),
        dt_max=largest,
        dt_min=least,
    )


def checked_step(name: str, value: Any, dtype: np.dtype) -> Any:
    """Return a step size as a positive scalar of `dtype`."""
    if not is_array(value) or np.ndim(value) != 0 or dtype_of(value).kind not in "fiu":
        raise TypeError(
            f"`{name}` must be one positive number, but {value!r} arrived; the same step is used "
            "for every trajectory."
        )
    number = known(value)
    if number is not None and not (np.isfinite(number) and number > 0):
        raise ValueError(
            f"`{name}` must be positive and finite, but {number} arrived; the direction of time "
            "comes from `t_span`, not from the sign of a step."
        )
    return cast(value, dtype)


def checked_max_steps(max_steps: Any) -> int:
    """Return the bound on attempted steps."""
    is_int = isinstance(max_steps, (int, np.integer)) and not isinstance(max_steps, bool)
    if not is_int or not 1 <= max_steps < 2**31:
        raise ValueError(
            "`max_steps` must be an integer from 1 to 2**31 - 1 (it bounds the loop, also of a "
            f"trajectory that never ends), but {max_steps!r} arrived."
        )
    return int(max_steps)


def checked_tolerance(name: str, value: Any, members: Members, adaptive: bool) -> Any:
    """Return a tolerance as a scalar, or as one number for each component of the state."""
    dtype = members.dtype
    if is_array(value) and np.ndim(value) == 0:
        _check_tolerance_numbers(name, value, dtype, adaptive)
        return cast(value, dtype)
    leaves, tree = named_leaves(name, value)
    if tree != members.y0_tree:
        raise ValueError(
            f"`{name}` must be a number or have the structure of `y0`, {members.y0_tree}, but "
            f"{tree} arrived; write one number for each leaf, or one for all."
        )
    return _ravelled(leaves, members.y0, dtype, adaptive)


def _ravelled(leaves: list[Leaf], y0: list[Leaf], dtype: np.dtype, adaptive: bool) -> Any:
    parts = []
    for leaf, state in zip(leaves, y0, strict=True):
        if is_array(leaf.value) and leaf.shape not in ((), state.shape):
            raise ValueError(
                f"`{leaf.path}` must be a number or have the shape of `{state.path}`, "
                f"{state.shape}, but shape {leaf.shape} arrived."
            )
        _check_tolerance_numbers(leaf.path, leaf.value, dtype, adaptive)
        xp = jnp if isinstance(leaf.value, jax.Array) else np
        parts.append(xp.ravel(xp.broadcast_to(cast(leaf.value, dtype), state.shape)))
    traced = any(isinstance(part, jax.Array) for part in parts)
    return (jnp if traced else np).concatenate(parts)


def _check_tolerance_numbers(name: str, value: Any, dtype: np.dtype, adaptive: bool) -> None:
    if not is_array(value) or dtype_of(value).kind not in "fiu":
        raise TypeError(f"`{name}` must be a real number, but {value!r} arrived.")
    numbers = known(value)
    if numbers is None or numbers.size == 0:
        return
    if not (numbers >= 0).all():
        bad = np.ravel(numbers)[~(np.ravel(numbers) >= 0)][0]
        raise ValueError(
            f"`{name}` must not be negative or NaN, but {bad} arrived; tolerances are sizes of "
            "errors, such as rtol=1e-6, atol=1e-9."
        )
    least = _RTOL_EPS * np.finfo(dtype).eps
    if adaptive and name.startswith("rtol") and numbers.min() < least:
        more = ", or a float64 `y0` for more digits" if dtype == np.float32 else ""
        raise ValueError(
            f"`{name}` must be at least {least:.2g}, which is what {dtype} can resolve, but "
            f"{numbers.min():.3g} arrived; use a larger tolerance{more}."
        )
