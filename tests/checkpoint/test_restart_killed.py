"""A process that is killed at random times and started again: the same bits in the end."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkpoint import restart_loop
from checkpoint.restart_loop import KINDS
from repo_files import ROOT

# Each of the 16 U-turns waits so long, so that most kills meet a process at work.
WAIT = 0.06
MOST_KILLS = 40


def start(directory, kind):
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    command = [sys.executable, restart_loop.__file__, str(directory), kind, str(WAIT)]
    # Warnings about lost snapshots are no part of this test.
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process, directory):
    _, err = process.communicate()
    assert process.returncode == 0, err
    return Path(f"{directory}.bits").read_text()


def killed_and_resumed(directory, kind, rng, longest, at_work):
    """Return the bits that the last process printed, and how many were killed.

    Args:
        directory: Of the run.
        kind: Of the storage.
        rng: Random numbers.
        longest: Seconds until a process is killed at most; longer each time, so that it ends.
        at_work: Whether they count from the first U-turn, not from the beginning.
    """
    n_kills = 0
    while True:
        process = start(directory, kind)
        assert process.stdout is not None
        for _ in range(2 if at_work else 1):
            process.stdout.readline()
        time.sleep(rng.uniform(0.0, longest))
        if n_kills < MOST_KILLS and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            n_kills += 1
            longest *= 1.3
            continue
        return finished(process, directory), n_kills


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("default", 0),
        *(pytest.param(kind, seed, marks=pytest.mark.slow) for kind in KINDS for seed in (1, 2)),
    ],
)
def test_killed_at_random_times(kind, seed, tmp_path):
    whole = finished(start(tmp_path / "whole", kind), tmp_path / "whole")
    rng = random.Random(seed)
    is_quick = seed == 0
    longest = 0.8 if is_quick else 0.7
    bits, n_kills = killed_and_resumed(tmp_path / "killed", kind, rng, longest, is_quick)
    assert bits == whole
    assert n_kills >= 1  # with these seeds
    assert not (Path(tmp_path) / "killed" / "snapshots").exists()
