"""Rules of `jax.random` with threefry keys: the same bits as on every other executor.

A key is a row of two uint32 words. Operations that only move keys around run once for each word.

References:
    [SMDS11] section 2.2, algorithm Threefry-2x32 with 20 rounds; how JAX numbers its counters is
    read off what it computes (`jax_threefry_partitionable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pullback.lanes.program_ir import Equation
from pullback.lanes.values import UINT32, Value, is_key, object_array
from pullback.lanes.walk import RULES, Walk, rule

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MOVES = (
    "slice",
    "squeeze",
    "expand_dims",
    "reshape",
    "broadcast_in_dim",
    "concatenate",
    "transpose",
    "dynamic_slice",
    "select_n",
    "unstack",
    "stack",
    "split",
    "rev",
    "gather",
    "copy",
    "dynamic_update_slice",
)
_UINT64 = np.dtype(np.uint64)


def threefry(b: Any, key: Sequence[Value], counter: Sequence[Value]) -> tuple[Value, Value]:
    """Encrypt a counter of two words under a key of two words."""
    parity = b.constant(_PARITY, UINT32)
    keys = [key[0], key[1], b.integer("xor", b.integer("xor", key[0], key[1]), parity)]
    x, y = (b.integer("add", c, k) for c, k in zip(counter, keys, strict=False))
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x = b.integer("add", x, y)
            y = b.integer("xor", _rotated(b, y, distance), x)
        x = b.integer("add", x, keys[(block + 1) % 3])
        y = b.integer("add", y, keys[(block + 2) % 3])
        y = b.integer("add", y, b.constant(block + 1, UINT32))
    return x, y


def _rotated(b: Any, x: Value, distance: int) -> Value:
    left = b.shift("shl", x, b.constant(distance, UINT32))
    right = b.shift("lshr", x, b.constant(32 - distance, UINT32))
    return b.integer("or", left, right)


@rule("threefry2x32")
def threefry2x32(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Encrypt elementwise."""
    b = walk.builder
    shape = tuple(equation.outputs[0].shape)
    flat = [np.broadcast_to(walk.arrays.registers(walk, x), shape).ravel() for x in inputs]
    pairs = [threefry(b, (k0, k1), (c0, c1)) for k0, k1, c0, c1 in zip(*flat, strict=True)]
    return [object_array(shape, [p[i] for p in pairs]) for i in range(2)]


@rule("random_wrap", "random_unwrap", "random_clone")
def random_wrap(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """A key and its words are the same values."""
    return inputs[0]


@rule("random_seed")
def random_seed(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Make a key of the upper and lower half of an integer."""
    _require_threefry(equation.params["impl"])
    b, seeds = walk.builder, walk.arrays.registers(walk, inputs[0])
    words = [w for seed in seeds.ravel() for w in _halves(b, seed)]
    return object_array((*seeds.shape, 2), words)


def _halves(b: Any, number: Value) -> tuple[Value, Value]:
    if number.dtype.itemsize <= 4:
        return b.constant(0, UINT32), b.convert(number, UINT32)
    wide = b.convert(number, _UINT64)
    high = b.shift("lshr", wide, b.constant(32, _UINT64))
    return b.convert(high, UINT32), b.convert(wide, UINT32)


@rule("random_fold_in")
def random_fold_in(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Derive a key from a key and a number."""
    keys, data = (walk.arrays.registers(walk, x) for x in inputs)
    shape = tuple(equation.outputs[0].shape)
    keys = np.broadcast_to(keys, (*shape, 2)).reshape(-1, 2)
    numbers = np.broadcast_to(data, shape).ravel()
    words = [
        w
        for key, n in zip(keys, numbers, strict=True)
        for w in threefry(walk.builder, list(key), _halves(walk.builder, n))
    ]
    return object_array((*shape, 2), words)


@rule("random_split")
def random_split(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Derive an array of keys from a key."""
    shape = tuple(equation.params["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    keys = walk.arrays.registers(walk, inputs[0])
    words = [
        w
        for key in keys.reshape(-1, 2)
        for i in range(count)
        for w in threefry(walk.builder, key, _counter(walk.builder, i))
    ]
    return object_array((*keys.shape[:-1], *shape, 2), words)


@rule("random_bits")
def random_bits(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
    """Return random bits: one encryption per element."""
    b, width = walk.builder, equation.params["bit_width"]
    out = equation.outputs[0]
    count = int(np.prod(equation.params["shape"], dtype=np.int64))
    keys = walk.arrays.registers(walk, inputs[0])
    items = [
        _bits(b, threefry(b, key, _counter(b, i)), width)
        for key in keys.reshape(-1, 2)
        for i in range(count)
    ]
    return object_array(tuple(out.shape), items)


def _bits(b: Any, words: tuple[Value, Value], width: int) -> Value:
    high, low = words
    if width == 64:
        wide = b.shift("shl", b.convert(high, _UINT64), b.constant(32, _UINT64))
        return b.integer("or", wide, b.convert(low, _UINT64))
    return b.convert(b.integer("xor", high, low), np.dtype(f"uint{width}"))


def _counter(b: Any, i: int) -> tuple[Value, Value]:
    return b.constant(i >> 32, UINT32), b.constant(i & 0xFFFFFFFF, UINT32)


def _require_threefry(impl: Any) -> None:
    if "fry" not in str(impl):
        raise NotImplementedError(f"random keys of the kind {impl}; threefry keys are supported")
    if not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        raise NotImplementedError("`jax_threefry_partitionable=False`")


def _wordwise(name: str) -> None:
    """Let a rule that moves elements move both words of a key."""
    plain = RULES[name]

    def moved(walk: Walk, equation: Equation, inputs: list[Any]) -> Any:
        if not any(is_key(v.aval) for v in equation.outputs):
            return plain(walk, equation, inputs)
        keys = [is_key(a.aval) for a in equation.inputs]
        words = []
        for word in range(2):
            parts = [x[..., word] if k else x for x, k in zip(inputs, keys, strict=True)]
            result = plain(walk, equation, parts)
            words.append(result if isinstance(result, list) else [result])
        joined = [np.stack([_array(p), _array(q)], -1) for p, q in zip(*words, strict=True)]
        return joined if len(joined) > 1 else joined[0]

    RULES[name] = moved


def _array(x: Any) -> np.ndarray:
    out = np.empty(np.shape(x), object)
    out[...] = x
    return out


for _name in _MOVES:
    _wordwise(_name)
