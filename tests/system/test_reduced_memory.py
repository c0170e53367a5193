"""A summary of many trajectories needs the memory of a block of them, forward and in reverse."""

import json
import subprocess
import sys

import pytest

from threads import needs_processors, printed_on_one_and_on_all

PROGRAM = """
import json, resource, sys
import jax, jax.numpy as jnp, numpy as np
import pullback as pb

def oscillator(t, y, k):
    return jnp.stack([y[1], -k * y[0]])

problem = pb.ODEProblem(oscillator, jnp.array([1.0, 0.0]), (0.0, 1.0), 1.0)

def summary(first, n):
    def prob_func(problem, ctx):
        return problem.replace(params=first + 1e-6 * ctx.sim_id)

    ensemble = pb.EnsembleProblem(problem, prob_func)
    found = pb.solve(
        ensemble, pb.Tsit5(), pb.EnsembleKernel(), trajectories=n, saveat=0.02, reduce="mean_var"
    )
    return found.value.mean[-1, 0]

def run(n):
    return jax.value_and_grad(summary)(1.0, n)

jax.block_until_ready(run(20_000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mean, slope = jax.block_until_ready(run(1_000_000))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
k = 1.0 + 1e-6 * np.arange(1_000_000)
slopes = -np.sin(np.sqrt(k)) / (2 * np.sqrt(k))
errors = [float(mean) - np.cos(np.sqrt(k)).mean(), float(slope) - slopes.mean()]
print(json.dumps({"grown": grown, "errors": errors}))
"""


@pytest.mark.slow
def test_a_million_trajectories():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    # The rows alone would be 408 MB; a compilation takes some tens.
    assert result["grown"] < 120e6, result
    # Single precision, and tolerances of 1e-3.
    assert max(map(abs, result["errors"])) < 2e-3, result


BITS = """
import jax, jax.numpy as jnp
import pullback as pb

problem = pb.ODEProblem(lambda t, y, k: jnp.stack([y[1], -k * y[0]]), jnp.ones(2), (0.0, 1.0), 1.0)
ensemble = pb.EnsembleProblem(problem, lambda q, c: q.replace(params=1.0 + 0.001 * c.sim_id))

def moments(scale):
    scaled = pb.EnsembleProblem(problem.replace(y0=scale * jnp.ones(2)), ensemble.prob_func)
    found = pb.solve(
        scaled, pb.Tsit5(), pb.EnsembleKernel(), trajectories=30_000, saveat=0.1, reduce="mean_var"
    ).value
    return jnp.sum(found.mean) + jnp.sum(found.var), found

(_, found), slope = jax.value_and_grad(moments, has_aux=True)(1.0)
numbers = jnp.concatenate([slope[None], found.mean.ravel(), found.var.ravel()])
print(*(float(x).hex() for x in numbers))
"""


@pytest.mark.slow
@needs_processors
def test_any_number_of_threads_gives_the_same_bits():
    one, every = printed_on_one_and_on_all(BITS)
    assert one == every
    assert len(one.split()) == 1 + 4 * 11
