"""Other processes: forked children are refused, spawned ones work and share the cache."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from pullback.native.handler_ir import FORKED

Run = Callable[..., subprocess.CompletedProcess[str]]

_FORK = """
import warnings
warnings.simplefilter("ignore")   # JAX warns at every fork
target = native.register_kernel(kernels.double_plus())
call, p = kernels.caller(target), jnp.float64(1.0)
small, large = jnp.zeros(8), jnp.zeros(1000)
for x in (small, large):
    call(x, p).block_until_ready()
child = os.fork()
if child == 0:
    for x in (small, large):
        try:
            call(x, p).block_until_ready()
        except ValueError as error:
            print(f"call: {error}", flush=True)
    try:
        native.register_kernel(kernels.double_plus("5.0"))
    except RuntimeError as error:
        print(f"register: {error}", flush=True)
    os._exit(7)   # as multiprocessing ends its forked children
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", float(call(large, p).sum()))
"""
_SPAWN = """
import multiprocessing
from native import kernels
from native.spawned import compute
from pullback import native

if __name__ == "__main__":
    native.register_kernel(kernels.double_plus())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(compute, (1000,)))
"""
_CACHED = """
target = native.register_kernel(kernels.double_plus())
y = kernels.caller(target)(jnp.arange(4.0), jnp.float64(1.0))
print(target.from_cache, target.name, np.asarray(y).tolist())
"""


def test_a_forked_child_gets_one_clear_error_and_ends(run_script: Run) -> None:
    result = run_script(_FORK)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    refusal = f"call: FAILED_PRECONDITION: {FORKED}"
    assert lines[:2] == [refusal, refusal]
    assert lines[2:] == [f"register: {FORKED}", "exit 7", "parent 1000.0"]


def test_a_fork_before_any_kernel_is_not_held_against_the_child(run_script: Run) -> None:
    text = """
child = os.fork()
if child == 0:
    native.require_not_forked()
    print("fine", flush=True)
    os._exit(0)
print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(text).stdout.split() == ["fine", "exit", "0"]


def test_a_spawned_child_works(run_script: Run, tmp_path: Path) -> None:
    # A real file: a spawned child imports its parent's main module.
    program = tmp_path / "program.py"
    program.write_text(_SPAWN)
    text = f"import runpy\nrunpy.run_path({str(program)!r}, run_name='__main__')\n"
    result = run_script(text)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(sum(2.0 * i + 3.0 for i in range(1000)))]


def test_a_second_process_loads_the_object_from_the_cache(run_script: Run, tmp_path: Path) -> None:
    first, second = (
        run_script(_CACHED, PULLBACK_CACHE_DIR=str(tmp_path / "cache")) for _ in range(2)
    )
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    flag, *rest = first.stdout.split(maxsplit=1)
    assert flag == "False"
    assert rest[0].endswith("[1.0, 3.0, 5.0, 7.0]\n")
    assert second.stdout == first.stdout.replace("False", "True", 1)
    assert len(list((tmp_path / "cache" / "objects").iterdir())) == 2  # handler and kernel
