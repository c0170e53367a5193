"""The same bits at every width, and whether or not slow paths are branched over."""

import numpy as np
import pytest

from lanes.elementary.builder import NUMPY, compiled
from lanes.elementary.points import seeded
from pullback.lanes.elementary import FUNCTIONS

N_POINTS = 4001  # no multiple of a width: the last vector is partly filled
WITH_SLOW_PATH = ("sin", "cos", "tan", "erf_inv", "lgamma", "digamma")


def any_bits(name: str, dtype: str) -> list[np.ndarray]:
    """Return numbers of all kinds: random bit patterns and numbers near one."""
    rng = seeded(name, dtype)
    kind = np.dtype(NUMPY[dtype])
    columns = []
    for _ in range(FUNCTIONS[name][1]):
        raw = np.frombuffer(rng.bytes(N_POINTS * kind.itemsize), kind).copy()
        raw[::2] = rng.normal(0, 2, raw[::2].size)
        columns.append(raw)
    return columns


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Assert equal bits; the sign and payload of a NaN are not specified."""
    bits = np.int64 if got.dtype == np.float64 else np.int32
    differ = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    assert np.flatnonzero(differ).tolist() == []


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_widths_agree(name, dtype):
    columns = any_bits(name, dtype)
    want = compiled(name, dtype)(*columns)
    for width in (1, 4, 16):
        assert_same_bits(compiled(name, dtype, width)(*columns), want)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", WITH_SLOW_PATH)
def test_branch_does_not_matter(name, dtype):
    columns = any_bits(name, dtype)
    want = compiled(name, dtype, 8, branching=False)(*columns)
    assert_same_bits(compiled(name, dtype)(*columns), want)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays_in_its_lane(name, dtype):
    """A NaN gives NaN, whatever its sign and payload, and its neighbours keep their bits."""
    rng = seeded(f"nan {name}", dtype)
    high = 1.0 if name in ("asin", "acos", "atanh", "erf_inv") else 9.0
    low = 1.0 if name == "acosh" else 0.1
    arity = FUNCTIONS[name][1]
    columns = [rng.uniform(low, high, N_POINTS).astype(NUMPY[dtype]) for _ in range(arity)]
    function = compiled(name, dtype)
    want = function(*columns)
    assert np.isfinite(want).all()
    hit = rng.random(N_POINTS) < 0.2
    bits = np.int64 if dtype == "f64" else np.int32
    mantissa = 52 if dtype == "f64" else 23
    payload = rng.integers(1, 1 << mantissa, N_POINTS) | np.array(NUMPY[dtype](np.inf)).view(bits)
    sign = np.where(rng.random(N_POINTS) < 0.5, np.iinfo(bits).min, 0)
    nans = (payload | sign).astype(bits).view(NUMPY[dtype])
    assert np.isnan(nans).all()
    for i in range(len(columns)):
        poisoned = [np.where(hit, nans, c) if i == j else c for j, c in enumerate(columns)]
        got = function(*poisoned)
        assert np.isnan(got[hit]).all()
        assert_same_bits(got[~hit], want[~hit])
