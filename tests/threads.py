"""Run a program on one processor and on all: the kernels' threads follow the processors."""

import os
import subprocess
import sys

import pytest

needs_processors = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="needs to choose its processors"
)
_CHOOSE = """
import os, sys
os.sched_setaffinity(0, set(map(int, sys.argv[1].split(","))))
"""


def printed_on_one_and_on_all(program: str) -> tuple[str, str]:
    """Return what a program prints on one processor, and on all of them."""
    every = sorted(os.sched_getaffinity(0))
    one, all_of_them = (
        subprocess.run(
            [sys.executable, "-c", _CHOOSE + program, ",".join(map(str, chosen))],
            capture_output=True, text=True, check=True,
        ).stdout
        for chosen in (every[:1], every)
    )  # fmt: skip
    return one, all_of_them
