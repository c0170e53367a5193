"""Steps that become native kernels: name -> (step, init, xs, closed-over parameter)."""

import jax
import jax.numpy as jnp
import numpy as np

VECTOR = jnp.sin(jnp.arange(8.0))
MATRIX = jnp.cos(jnp.arange(24.0)).reshape(4, 6)
WEIGHTS = jnp.sin(jnp.arange(36.0)).reshape(6, 6) / 6
PLACES = np.array([3, 1, 1, 7, 0, 2, 5, 6])


def lorenz(p, y, _):
    a, b, c = y
    d = jnp.stack([p * (b - a), a * (28.0 - c) - b, a * b - 8 / 3 * c])
    return y + 1e-3 * d, None


def lorenz_96(p, y, _):
    def field(y):
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + p

    k = field(y)
    return y + 0.01 * field(y + 0.005 * k), None


def tree(p, carry, x):
    i, flags, parts = carry["i"], carry["flags"], carry["parts"]
    a, b = parts
    a = jnp.where(flags, a + 0.1 * p * x["f"], 0.99 * a)
    b = b + 0.01 * a[1] * i
    carry = {"i": i + x["n"], "flags": flags ^ (a > 0.5), "parts": (a, b)}
    return carry, {"b": b, "i": i, "slice": a[1:4]}


TREE = {
    "i": jnp.int32(1),
    "flags": jnp.array([True, False, True, True, False]),
    "parts": (0.3 * VECTOR[:5], jnp.float64(0.5)),
}
TREE_XS = {"f": jnp.cos(jnp.arange(45.0)).reshape(9, 5), "n": jnp.arange(9, dtype=jnp.int32)}


def matrix(p, u, _):
    lap = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.pad(u, ((0, 0), (1, 1)))[:, 2:] - 3 * u
    rows = jnp.concatenate([u[1:, ::-1], u[:1]])
    return u + 0.05 * p * lap + 0.01 * rows * u.T.reshape(4, 6), u[0, ::2]


def layers(p, y, x):
    h = jnp.tanh(WEIGHTS @ y + p)
    h = jax.nn.softplus(h @ WEIGHTS.T) * jax.nn.sigmoid(y)
    return 0.9 * y + 0.1 * h + 0.01 * x, jnp.vdot(h, y)


def functions(p, y, _):
    z = jnp.exp(-y * y) + jnp.log1p(y * y) + jnp.sin(3 * y) * jnp.cos(y) + jnp.arctan2(y, p)
    z = z + jnp.sqrt(1 + y**2) + jnp.cbrt(2 + y) + (1.5 + jnp.tanh(y)) ** p + y**3 / (1 + y**4)
    return 0.5 * y + 0.02 * z, jnp.sum(z)


def places(p, y, _):
    g = y[PLACES] * p
    y = y.at[2].set(0.5 * y[0]).at[PLACES[:3]].add(0.01)
    return y + 0.01 * g - 0.001 * jnp.cumsum(y), y[jnp.argmax(y)]


def choices(p, y, x):
    y = jnp.clip(y, -0.9, 0.9)
    y = jax.lax.cond(x > 4, lambda y: y * p, lambda y: y + 0.01 * p, y)
    y = jax.lax.switch(x % 3, [lambda y: y, lambda y: 0.9 * y, lambda y: y - 0.01], y)
    return jnp.where(jnp.abs(y) > 0.5, 0.8 * y, y), jnp.max(y) - jnp.min(jnp.minimum(y, p))


def inner_loop(p, y, _):
    def stage(v, w):
        return v + 0.1 * p * w * jnp.sin(v), v[0]

    v, first = jax.lax.scan(stage, y, jnp.array([0.1, 0.2, 0.3]))
    return 0.5 * (y + v), first


def integers(p, carry, x):
    i, y = carry
    i = ((i * 1664525 + 1013904223) ^ (i >> 7)) & 0x7FFFFFFF
    return (i, y + 0.01 * p * (i % 17).astype(float) / (x + 1)), i // 3


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, x), lambda x, ct: (2.0 * ct + 0.001 * x,))


def own_rule(p, y, _):
    return 0.4 * doubled(y) + 0.1 * p, None


STEPS = {
    "lorenz": (lorenz, jnp.array([1.0, 1.1, 20.0]), None, 10.0),
    "lorenz_96": (lorenz_96, VECTOR, None, 2.0),
    "tree": (tree, TREE, TREE_XS, 0.7),
    "matrix": (matrix, MATRIX, None, 0.3),
    "layers": (layers, VECTOR[:6], jnp.arange(9.0), 0.2),
    "functions": (functions, VECTOR, None, 1.3),
    "functions of three": (functions, VECTOR[:3], None, 1.3),
    "functions of a scalar": (functions, VECTOR[1], None, 1.3),
    "places": (places, VECTOR, None, 0.4),
    "choices": (choices, VECTOR, jnp.arange(9), 1.1),
    "inner loop": (inner_loop, VECTOR, None, 0.6),
    "integers": (integers, (jnp.int32(5), jnp.float64(0.1)), jnp.arange(9.0), 0.6),
    "own rule": (own_rule, VECTOR, None, 0.6),
}
