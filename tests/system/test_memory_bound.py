"""The tape is per thread: a gradient of many trajectories needs little more than its arrays."""

import json
import subprocess
import sys

PROGRAM = """
import json, resource, sys
import jax, jax.numpy as jnp, numpy as np
import pullback as pb
jax.config.update("jax_enable_x64", True)

def lorenz(t, y, p):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (p - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

def loss(y0, p):
    problem = pb.ODEProblem(lorenz, y0[0], (0.0, 1.0), p[0])
    ensemble = pb.EnsembleProblem(problem, y0=y0, params=p)
    return pb.solve(ensemble, pb.Tsit5(), pb.EnsembleKernel(), rtol=1e-4, atol=1e-4).y_end.sum()

gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
n = int(sys.argv[1])
y0, p = np.tile([[1.0, 0.0, 0.0]], (n, 1)), np.linspace(0, 21, n)
jax.block_until_ready(gradient(y0[:4096], p[:4096]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
g = jax.block_until_ready(gradient(y0, p))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
print(json.dumps({"grown": grown, "arrays": y0.nbytes + p.nbytes + g[0].nbytes + g[1].nbytes,
                  "finite": bool(jnp.isfinite(g[0]).all())}))
"""


def test_gradient_of_a_million_trajectories():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "1000000"], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["finite"]
    assert result["grown"] <= 1.5 * result["arrays"] + 300e6, result
