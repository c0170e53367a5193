"""The command line of the modules beside `python -m benchmarks`, and what they set first."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator

import jax


def make_parser(module: str, cases: Iterable[str], n: int | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all have.

    Args:
        module: name of the module.
        cases: names of its problems.
        n: trajectories unless others are asked for; None if each problem has its own number.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}")
    parser.add_argument("--case", action="append", choices=tuple(cases), help="only this one")
    default = "each problem's own number" if n is None else n
    parser.add_argument("--n", type=int, default=n, help=f"trajectories (default: {default})")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: %(default)s)")
    return parser


@contextlib.contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Compute in double precision and without kept kernels: first calls are measured, too."""
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory(prefix="pullback-") as cache:
        os.environ["PULLBACK_CACHE_DIR"] = cache
        yield
