"""Every method with every option, two at a time, against a closed form.

The problem depends on time, state and parameters and has a state of two leaves:
a' = -k a + cos(t), b' = k (-b[1], b[0]).
"""

import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from executors import EXECUTORS
from pairwise import pairwise

N = 3
RATES = np.array([0.5, 1.0, 2.0])
DT = 1 / 64

# Order of the step and of the interpolant between steps.
METHODS = {
    pb.Euler(): (1, 1),
    pb.Heun(): (2, 2),
    pb.Midpoint(): (2, 2),
    pb.RK4(): (4, 3),
    pb.Bosh3(): (3, 3),
    pb.Tsit5(): (5, 4),
    pb.Dopri5(): (5, 4),
    pb.Vern7(): (7, 6),
}
OPTIONS = {
    "method": list(METHODS),
    "adaptive": [True, False],
    "saveat": ["end", "spacing", "times", "times each", "steps"],
    "t_span": ["forward", "backward", "each"],
    "trajectories": ["single", "leaves", "prob_func"],
    "dtype": [np.float64, np.float32],
    "dt_max": [None, 0.125],
}
RTOL = {np.float64: 1e-7, np.float32: 1e-5}


def allowed(combo):
    single = combo["trajectories"] == "single"
    per_trajectory = combo["t_span"] == "each" or combo["saveat"] == "times each"
    estimate = combo["method"].has_error_estimate
    return (
        not (single and per_trajectory)
        and (estimate or not combo["adaptive"])
        and (combo["adaptive"] or combo["dt_max"] is None)
        and not (combo["t_span"] == "each" and combo["saveat"] == "times")
    )


COMBOS = list(pairwise(OPTIONS, allowed))
# Combinations that EnsembleArray compiles in the quick run; the first ones cover most pairs.
N_ALWAYS = 8


def field(t, y, params):
    a, (b0, b1) = y["a"], y["b"]
    k = params["k"]
    return {"a": -k * a + jnp.cos(t), "b": jnp.stack([-k * b1, k * b0])}


def exact(k, t0, t):
    """Closed form, for a(t0) = 1 and b(t0) = (1, 0)."""

    def particular(t):
        return (k * np.cos(t) + np.sin(t)) / (1 + k * k)

    a = particular(t) + (1 - particular(t0)) * np.exp(-k * (t - t0))
    phase = k * (t - t0)
    return a, np.stack([np.cos(phase), np.sin(phase)], axis=-1)


def spans(kind):
    ends = {"forward": (0.0, 1.0), "backward": (1.0, 0.0)}.get(kind, (0.0, 1.0))
    t0, t1 = np.full(N, ends[0]), np.full(N, ends[1])
    return (t0, np.array([1.0, 0.75, 1.25])) if kind == "each" else (t0, t1)


def save_times(kind, t0, t1):
    if kind == "spacing":
        return 0.3
    if kind in ("times", "times each"):
        rows = t0[:, None] + (t1 - t0)[:, None] * np.array([0.2, 0.5, 1.0])
        return rows if kind == "times each" else rows[0]
    return {"end": None, "steps": "steps"}[kind]


def problem_of(combo, t0, t1):
    dtype, single = combo["dtype"], combo["trajectories"] == "single"
    y0 = {"a": dtype(1.0), "b": np.array([1.0, 0.0], dtype)}
    rates = RATES.astype(dtype)
    problem = pb.ODEProblem(field, y0, (t0[0], t1[0]), {"k": rates[0], "unused": None})
    if single:
        return problem, {}
    if combo["trajectories"] == "leaves":
        return pb.EnsembleProblem(problem, params={"k": rates, "unused": None}, t_span=(t0, t1)), {}

    def prob_func(problem, ctx):
        params = {**problem.params, "k": jnp.asarray(rates)[ctx.sim_id]}
        if combo["t_span"] != "each":
            return problem.replace(params=params)
        return problem.replace(params=params, t_span=(t0[0], jnp.asarray(t1)[ctx.sim_id]))

    return pb.EnsembleProblem(problem, prob_func), {"trajectories": N}


def allowed_error(combo):
    """Global error that the order and the step, or the tolerance, lead to expect."""
    order, dense = METHODS[combo["method"]]
    dtype = combo["dtype"]
    if combo["saveat"] in ("end", "steps"):
        dense = order
    # Derivatives of order p + 1 are below 2 * 2**p for k <= 2; backward, errors grow by exp(k T).
    growth = np.exp(RATES.max()) if combo["t_span"] == "backward" else 1.0
    fixed = 2 * growth * (2 * DT) ** min(order, dense)
    rounding = 1000 * np.finfo(dtype).eps  # some hundred steps
    return rounding + (100 * RTOL[dtype] if combo["adaptive"] else fixed)


def cases():
    """Pair every combination with every executor; the slowest to compile only now and then."""
    for executor in EXECUTORS:
        for i, combo in enumerate(COMBOS):
            name = "-".join(str(getattr(v, "__name__", v)) for v in combo.values())
            late = isinstance(executor.values[0], pb.EnsembleArray) and i >= N_ALWAYS
            marks = [*executor.marks, *([pytest.mark.slow] if late else [])]
            yield pytest.param(combo, executor.values[0], id=f"{executor.id}-{name}", marks=marks)


@pytest.mark.parametrize(("combo", "executor"), list(cases()))
def test_against_the_closed_form(combo, executor):
    t0, t1 = spans(combo["t_span"])
    problem, options = problem_of(combo, t0, t1)
    if combo["saveat"] == "steps":
        options["max_saves"] = 10_000
    options |= {"rtol": RTOL[combo["dtype"]], "atol": 1e-8} if combo["adaptive"] else {"dt": DT}
    sol = pb.solve(
        problem,
        combo["method"],
        executor,
        saveat=save_times(combo["saveat"], t0, t1),
        dt_max=combo["dt_max"],
        **options,
    )
    single = combo["trajectories"] == "single"
    n = 1 if single else N
    t = np.asarray(sol.t, np.float64).reshape(n, -1)
    a = np.asarray(sol.y["a"], np.float64).reshape(n, -1)
    b = np.asarray(sol.y["b"], np.float64).reshape(n, -1, 2)
    assert np.all(sol.ok)
    np.testing.assert_array_equal(sol.t_end, t1.astype(combo["dtype"])[0 if single else slice(n)])
    np.testing.assert_array_equal(t[:, -1], t1.astype(combo["dtype"])[:n])
    for i in range(n):
        rows = int(np.ravel(sol.n_saved)[i])
        assert rows > 0
        expected_a, expected_b = exact(RATES[i], t0[i], t[i])
        error = max(np.abs(a[i] - expected_a).max(), np.abs(b[i] - expected_b).max())
        assert error <= allowed_error(combo), f"trajectory {i}: error {error:.2e}"


def test_the_combinations_cover_every_pair():
    seen = {(m, s) for m, s in ((c["method"], c["saveat"]) for c in COMBOS)}
    assert len(seen) == len(OPTIONS["method"]) * len(OPTIONS["saveat"])
    assert {(c["trajectories"], c["t_span"]) for c in COMBOS} >= {
        ("leaves", "each"),
        ("prob_func", "each"),
        ("single", "backward"),
    }
    assert len(COMBOS) < 60
