"""The generator of noise: known answers, accuracy, and statistics that would show a mistake."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pullback.lanes.cpu.target import lane_width, vector_bytes
from pullback.ode.gaussian import normal_pair
from pullback.ode.noise import normals
from pullback.ode.philox import philox

ONES = 0xFFFFFFFF
# Of the generator's authors: key, counter, words.
KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES), (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(values):
    return tuple(jnp.asarray(np.uint32(v)) for v in values)


@pytest.mark.parametrize("is_wide", [True, False], ids=["x64", "x32"])
@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_known_answers(key, counter, expected, is_wide):
    with jax.enable_x64(is_wide):
        found = philox(words(key), words(counter))
    assert [int(w) for w in found] == list(expected)


# float64: the polynomials are good to 1e-11, which grows with the radius (up to 6.8). float32:
# rounding of numbers up to 5.8, and of a cosine whose coefficients add up to 20.
@pytest.mark.parametrize(
    ("dtype", "drop", "bound"), [(np.float64, 0, 1e-10), (np.float32, 9, 1e-5)]
)
def test_normal_numbers_are_those_of_the_formula(dtype, drop, bound, rng):
    first, second = rng.integers(0, 2**32, (2, 20_000), dtype=np.uint32)
    first[:4] = second[4:8] = [0, ONES, 2**31, 2**31 - 1]
    found = jax.jit(lambda a, b: normal_pair(a, b, jnp.ones((), dtype)))(first, second)
    u = ((first >> drop) + 0.5) / 2.0 ** (32 - drop)
    turns = ((second.view(np.int32) >> drop) + 0.5) / 2.0 ** (31 - drop)
    radius = np.sqrt(-2.0 * np.log(u))
    assert found[0].dtype == dtype
    for z, circle in zip(found, (np.cos(np.pi * turns), np.sin(np.pi * turns)), strict=True):
        assert np.abs(np.asarray(z) - radius * circle).max() < bound


def test_the_largest_numbers_are_finite():
    extreme = jnp.asarray([0, ONES], jnp.uint32)
    for dtype, largest in ((jnp.float64, 6.77), (jnp.float32, 5.77)):
        z, _ = normal_pair(extreme, jnp.asarray([0, 0], jnp.uint32), jnp.ones((), dtype))
        assert bool(jnp.isfinite(z).all())
        assert float(jnp.abs(z).max()) == pytest.approx(largest, abs=0.01)


def test_variance_scales_and_is_differentiable():
    key, index = jnp.asarray([1, 2], jnp.uint32), jnp.int32(5)

    def drawn(v):
        return normals(key, index, v, 3)

    unit = drawn(jnp.ones(()))
    value, dot = jax.jvp(drawn, (jnp.asarray(0.25),), (jnp.asarray(1.0),))
    eps = np.finfo(float).eps
    np.testing.assert_allclose(value, 0.5 * unit, rtol=4 * eps)
    np.testing.assert_allclose(dot, unit, rtol=8 * eps)  # d sqrt(v) / dv = 1 at v = 1/4


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11])
def test_a_channel_does_not_depend_on_how_many_there_are(count):
    key, one = jnp.asarray([3, 4], jnp.uint32), jnp.ones(())
    draw = jax.jit(normals, static_argnums=3)
    many = draw(key, jnp.int32(9), one, 16)
    np.testing.assert_array_equal(draw(key, jnp.int32(9), one, count), many[:count])
    assert len(np.unique(many)) == 16


def test_a_program_with_the_generator_takes_more_lanes(monkeypatch):
    monkeypatch.delenv("PULLBACK_LANE_WIDTH", raising=False)

    def draw(key, scale, n):
        return scale * (normals(key, jnp.int32(0), jnp.ones(()), 1) if n else 1.0)

    programs = [
        jax.make_jaxpr(lambda k, s, n=n: draw(k, s, n))(jnp.zeros(2, jnp.uint32), 1.0)
        for n in (0, 1)
    ]
    without, with_noise = map(lane_width, programs)
    assert with_noise == max(vector_bytes() // 2, 4)
    assert without <= with_noise


def standard(seed, n_paths, n_steps, n_channels):
    """Normal numbers `(path, step, channel)` of the keys that an ensemble has."""
    base = jax.random.key(seed)
    keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(base, i)))(jnp.arange(n_paths))

    def of_path(key):
        return jax.vmap(lambda i: normals(key, i, jnp.ones(()), n_channels))(
            jnp.arange(n_steps, dtype=jnp.int32)
        )

    return np.asarray(jax.jit(jax.vmap(of_path))(keys))


def correlations(z):
    """Products of neighbours in every direction, which have mean zero and variance one."""
    yield from (z[1:] * z[:-1], z[:, 1:] * z[:, :-1], z[1:, 1:] * z[:-1, :-1])
    yield from (z[:, 1:, 0] * z[:, :-1, 1], z[1:, :, 1] * z[:-1, :, 0])
    for a in range(z.shape[2]):
        for b in range(a):
            yield z[..., a] * z[..., b]


def check_statistics(z):
    # About 25 numbers that are standard normal if all is well: beyond 4.5 once in 6000 seeds.
    n = z.size
    scores = [np.sum(z) / np.sqrt(n), np.sum(z**2 - 1) / np.sqrt(2 * n)]
    scores += [np.sum(z**3) / np.sqrt(15 * n), np.sum(z**4 - 3) / np.sqrt(96 * n)]
    squares = (z**2 - 1) / np.sqrt(2)
    scores += [p.sum() / np.sqrt(p.size) for x in (z, squares) for p in correlations(x)]
    counts = np.histogram(stats.norm.cdf(z), 256, (0, 1))[0]
    chi2 = np.sum((counts - n / 256) ** 2) / (n / 256)
    scores.append((chi2 - 255) / np.sqrt(2 * 255))
    n_far = n * 2 * stats.norm.sf(4)
    scores.append((np.sum(np.abs(z) > 4) - n_far) / np.sqrt(n_far))
    assert np.abs(scores).max() < 4.5


def test_statistics():
    check_statistics(standard(1, 1024, 64, 4))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_statistics_of_many(seed):
    check_statistics(standard(seed, 16_384, 64, 6))
