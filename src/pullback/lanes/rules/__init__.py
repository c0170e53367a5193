"""Rules of JAX primitives, one table for every builder; importing this registers them."""

from pullback.lanes.rules import (
    control,
    elementwise,
    indexing,
    linalg,
    reduce,
    refs,
    scans,
    shape,
    sorting,
)
from pullback.lanes.rules import random as random  # after the rules that it extends

__all__ = [
    "control",
    "elementwise",
    "indexing",
    "linalg",
    "random",
    "reduce",
    "refs",
    "scans",
    "shape",
    "sorting",
]
