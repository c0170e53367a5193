"""Names of array types used in signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy as np

__all__ = ["Array", "ArrayLike", "DType", "MaybeArray", "PyTree"]

Array: TypeAlias = jax.Array
ArrayLike: TypeAlias = jax.typing.ArrayLike
DType: TypeAlias = np.dtype
PyTree: TypeAlias = Any
# An array, or None where the static part of a program leaves it out: a checker cannot know which.
MaybeArray: TypeAlias = Any
