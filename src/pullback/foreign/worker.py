"""The process in which Enzyme's compiler runs, and may crash.

Usage: python worker.py job.json

Says on standard output which unit it begins and which it has finished; diagnostics come on standard
error between markers. Imports nothing of this package: it is a program.
"""

import json
import sys


def main(path: str) -> None:
    """Compile the units of a job, one after the other."""
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    from enzyme_ad.jax import enzyme_call  # noqa: PLC0415  # pyright: ignore

    outs, ins = [("double", [1])], [("int64_t", [1])]
    for unit in job["units"]:
        for stream in (sys.stdout, sys.stderr):
            print(f"\n@@begin {unit['mode']}", file=stream, flush=True)
        with open(unit["source"], encoding="utf-8") as file:
            text = file.read()
        enzyme_call.compile_to_llvm(
            unit["result"], text, job["entry"], outs, ins, tuple(job["argv"]),
            enzyme_call.Language.CPP, False, "",
        )  # fmt: skip
        print(f"\n@@end {unit['mode']}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
