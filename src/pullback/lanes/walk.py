"""The walk: evaluate a block of the lane program with values that emit instructions.

The walk knows no primitive and no target: it looks the primitive up in the table of rules
(:mod:`pullback.lanes.rules`) and hands the rule the builder. A primitive without a rule is an error
that names it and the line of the user's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from pullback.core.compat import user_line
from pullback.core.errors import UnsupportedPrimitive
from pullback.lanes.program_ir import Atom, Block, Constant, Equation, Var
from pullback.lanes.values import Value, is_key, is_lane_dtype, object_array, scalar

Rule = Callable[["Walk", Equation, list[Any]], Any]
RULES: dict[str, Rule] = {}


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of `primitives`."""

    def register(function: Rule) -> Rule:
        for primitive in primitives:
            RULES[primitive] = function
        return function

    return register


def register_rule(primitive: str, function: Rule) -> None:
    """Let the lane compiler handle a primitive of another layer.

    Args:
        primitive: Name of the JAX primitive.
        function: Called with the walk, the equation and its inputs (arrays of lane values); emits
            instructions through the walk's builder and returns the results.
    """
    RULES[primitive] = function


class Walk:
    """Evaluates equations; holds the builder, how arrays are held, and the current mask.

    `mask` says which lanes execute at this point (None: all that hold a trajectory): rules with
    effects must respect it. `unrolled_matrix` is the size of the largest matrix that was eliminated
    by its pattern of zeros, which only arrays in registers show.
    """

    def __init__(self, builder: Any, arrays: Any) -> None:
        self.builder = builder
        self.arrays = arrays
        self.mask: Value | None = None
        self.unrolled_matrix = 0

    def read(self, env: dict[Var, Any], atom: Atom) -> Any:
        """Return the array that an atom stands for."""
        if isinstance(atom, Constant):
            # A literal is a Python number: only its type in the program says how wide it is.
            return self.constant(constant_array(atom))
        return env[atom]

    def constant(self, value: Any) -> Any:
        """Return a closed-over array as lane values."""
        return self.arrays.constant(np.asarray(value))

    def block(self, block: Block, arguments: Sequence[Any]) -> list[Any]:
        """Evaluate a block and return its results."""
        env = dict(zip(block.inputs, arguments, strict=True))
        self.equations(block.equations, env, block.outputs, forget=True)
        return [self.read(env, atom) for atom in block.outputs]

    def equations(
        self,
        equations: Sequence[Equation],
        env: dict[Var, Any],
        results: Sequence[Atom] = (),
        *,
        forget: bool = False,
    ) -> None:
        """Evaluate equations in order, adding their results to `env`.

        With `forget`, a variable leaves `env` after its last use, which frees its memory.
        """
        uses = Counter(a for e in equations for a in e.inputs if isinstance(a, Var))
        uses.update(a for a in results if isinstance(a, Var))
        for equation in equations:
            apply = RULES.get(equation.primitive)
            if apply is None:
                raise UnsupportedPrimitive(unsupported_message(equation))
            _check_dtypes(equation)
            inputs = [self.read(env, atom) for atom in equation.inputs]
            produced = self._apply(apply, equation, inputs)
            del inputs
            if len(equation.outputs) == 1 and not isinstance(produced, list):
                produced = [produced]
            for var, value in zip(equation.outputs, produced, strict=True):
                env[var] = self.arrays.settle(value, uses[var])
            del produced
            if forget:
                uses.subtract(a for a in equation.inputs if isinstance(a, Var))
                for atom in equation.inputs:
                    if isinstance(atom, Var) and uses[atom] <= 0:
                        env.pop(atom, None)

    def _apply(self, apply: Rule, equation: Equation, inputs: list[Any]) -> Any:
        """Apply a rule; what it cannot do becomes one sentence with the user's line."""
        try:
            return apply(self, equation, inputs)
        except UnsupportedPrimitive:
            raise
        except NotImplementedError as error:
            raise UnsupportedPrimitive(unsupported_message(equation, str(error))) from error

    @contextmanager
    def masked(self, mask: Value | None) -> Iterator[None]:
        """Let `mask` say which lanes execute inside."""
        outer, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = outer

    def under(self, mask: Value | None) -> Value | None:
        """Return the current mask narrowed by `mask`."""
        if self.mask is None or mask is None:
            return mask if self.mask is None else self.mask
        return self.builder.integer("and", self.mask, mask)

    def map(self, function: Callable[..., Value], *arrays: np.ndarray) -> np.ndarray:
        """Apply a scalar operation elementwise, broadcasting scalars."""
        shape = arrays[0].shape
        if any(a.shape != shape for a in arrays):
            shape = np.broadcast_shapes(*[a.shape for a in arrays])
            arrays = tuple(np.broadcast_to(a, shape) for a in arrays)
        if not shape:
            return scalar(function(*[a[()] for a in arrays]))
        flat = [a.ravel() for a in arrays]
        return object_array(shape, [function(*items) for items in zip(*flat, strict=True)])


def constant_array(atom: Constant) -> np.ndarray:
    """Return a literal or closed-over constant in its own dtype, a random key as its words."""
    if is_key(atom.aval):
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.random.key_data(atom.value))
    return np.asarray(atom.value, atom.aval.dtype)


def _check_dtypes(equation: Equation) -> None:
    """Refuse, with the user's line, numbers that lanes do not hold."""
    for atom in (*equation.inputs, *equation.outputs):
        dtype = getattr(atom.aval, "dtype", None)
        if dtype is not None and not is_lane_dtype(dtype):
            reason = f"values of type {dtype}"
            raise UnsupportedPrimitive(unsupported_message(equation, reason))


def unsupported_message(equation: Equation, reason: str = "") -> str:
    """Return the sentence for something the lane compiler cannot do, with the user's line."""
    where = source_line(equation)
    if equation.primitive == "custom_lin":
        return (
            f"forward mode cannot pass the `jax.custom_vjp` function{where}: JAX has no rule for "
            "its tangent; use reverse mode (jax.grad), or define the rule with `jax.custom_jvp`"
        )
    if equation.primitive == "lane_call":
        return (
            f"`pb.solve` cannot run inside another solve's vector field on `EnsembleKernel`{where}"
            "; use `EnsembleArray()` for the outer solve, or make the inner problem part of its "
            "state"
        )
    detail = f" ({reason})" if reason else ""
    return (
        f"`EnsembleKernel` cannot compile the primitive `{equation.primitive}`{detail}{where}; "
        "use `EnsembleArray()` for this problem, or rewrite that line with supported operations"
    )


def source_line(equation: Equation) -> str:
    """Return ' at file:line' of the user's code, or nothing if it is not known."""
    line = user_line(equation.sources)
    return f" used at {line}" if line else ""
