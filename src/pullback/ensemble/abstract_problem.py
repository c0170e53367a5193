"""What all problems have in common: their parts, as a pytree that compares its functions."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Self

import jax
import numpy as np

__all__ = ["AbstractProblem", "PyTree", "is_leaf", "split_t_span"]

PyTree = Any
_VALUES = ("y0", "t_span", "params")


class AbstractProblem(abc.ABC):
    """One initial value problem; subclasses are frozen dataclasses that say which parts they have.

    A problem only holds what the user gave. Its values are checked and cast by
    :func:`pullback.solve`, because a problem is also built from tracers, and rebuilt by every
    transformation of a pytree.

    A problem is a pytree with the leaves of `y0`, `t_span` and `params`, so it passes through
    `jax.jit`, `jax.grad` and `jax.vmap`. A function that is itself a pytree (an Equinox module, a
    `jax.tree_util.Partial`) contributes its own leaves; a plain function is static.

    Attributes:
        function_names: the parts that are functions, of which one may be None.
        static_names: the parts that are neither functions nor arrays, behind all others.
    """

    function_names: ClassVar[tuple[str, ...]]
    static_names: ClassVar[tuple[str, ...]] = ()

    y0: PyTree
    t_span: Any
    params: PyTree

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of the problem, which all its trajectories have in common."""
        every = (getattr(self, name) for name in self.function_names)
        return tuple(function for function in every if function is not None)

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        """Return the names of all parts, in the order in which a user gives them."""
        return tuple(field.name for field in fields(cls))  # pyright: ignore[reportArgumentType]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named parts changed (`remake` in Julia).

        Args:
            changes: any of the arguments that the problem was made of.
        """
        names = self.part_names()
        unknown = sorted(set(changes) - set(names))
        if unknown:
            kind = type(self).__name__
            raise TypeError(
                f"`replace` got `{unknown[0]}`, which is no part of an {kind}; the parts are "
                f"{', '.join(f'`{name}`' for name in names)}."
            )
        return type(self)(**({name: getattr(self, name) for name in names} | changes))

    def _set(self, **parts: Any) -> None:
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Split into leaves with their names and the static part."""
        functions = [getattr(self, name) for name in self.function_names]
        fixed = tuple(f if is_leaf(f) else None for f in functions)
        moving = [n for n, f in zip(self.function_names, fixed, strict=True) if f is None]
        children = [
            (jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in (*moving, *_VALUES)
        ]
        return children, (fixed, tuple(getattr(self, name) for name in self.static_names))

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Self:
        """Rebuild without checks: the leaves may be anything that JAX puts there."""
        problem = object.__new__(cls)
        functions, others = static
        rest = iter(children)
        functions = [next(rest) if f is None else f for f in functions]
        names = (*cls.function_names, *_VALUES, *cls.static_names)
        problem._set(**dict(zip(names, (*functions, *rest, *others), strict=True)))
        return problem

    def _described(self) -> str:
        """Return the functions and the values, for `__repr__`."""
        names = ", ".join(getattr(f, "__name__", type(f).__name__) for f in self.functions)
        return f"{names}, y0={self.y0!r}, t_span={self.t_span!r}, params={self.params!r}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"


def is_leaf(tree: Any) -> bool:
    """Whether JAX sees `tree` as one leaf, not as a container."""
    return jax.tree_util.all_leaves([tree])


def split_t_span(t_span: Any) -> tuple[Any, Any]:
    """Return `t_span` as a pair, whether it came as one or as an array with two entries."""
    if isinstance(t_span, (tuple, list)):
        if len(t_span) == 2:
            return (t_span[0], t_span[1])
        got = f"{len(t_span)} entries"
    elif isinstance(t_span, (np.ndarray, jax.Array)):
        if t_span.shape == (2,):
            return (t_span[0], t_span[1])
        got = f"an array of shape {t_span.shape}"
    else:
        got = f"a {type(t_span).__name__}"
    raise ValueError(
        f"`t_span` must be the pair (t0, t1), but {got} arrived; write t_span=(0.0, 1.0). Spans "
        "that differ between trajectories go to EnsembleProblem(problem, t_span=...)."
    )
