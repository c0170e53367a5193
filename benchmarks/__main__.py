"""`python -m benchmarks`: measure, print tables, write JSON and charts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

_RESULTS = Path(__file__).resolve().parent / "results"


def _arguments() -> argparse.Namespace:
    # Imported late: the environment must be set before pullback is.
    from benchmarks.cases import CASES  # noqa: PLC0415
    from benchmarks.programme import PARTS  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all sizes and precisions")
    parser.add_argument("--case", action="append", choices=tuple(CASES), help="only this one")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--n", type=int, help="trajectories, instead of each job's own number")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=_RESULTS / "benchmarks.json", metavar="FILE")
    parser.add_argument("--charts", type=Path, default=_RESULTS, metavar="DIR")
    options = parser.parse_args()
    for name in ("n", "repeats"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    options.case = tuple(options.case or CASES)
    options.part = tuple(options.part or PARTS)
    return options


def main() -> None:
    """Run the programme."""
    with tempfile.TemporaryDirectory(prefix="pullback-") as cache:
        # Kernels kept by earlier runs would make first calls look quick.
        os.environ["PULLBACK_CACHE_DIR"] = cache
        import jax  # noqa: PLC0415

        jax.config.update("jax_enable_x64", True)
        _run(_arguments())


def _run(options: argparse.Namespace) -> None:
    from benchmarks import charts, fresh, programme, records, targets  # noqa: PLC0415

    before = records.machine()
    measured: list[records.Record] = []
    new: list[records.FreshRecord | None] = []
    for job in programme.jobs(options.full, options.case, options.part, options.n):
        measured += programme.run(job, options.repeats)
        _write(options.json, before, measured, [])  # what there is, should the rest not come
    if programme.FRESH in options.part:
        wanted = (*fresh.SHORT, *(fresh.LONG if options.full else ()))
        for question, case, work, peer, n in wanted:
            if case in options.case:
                programme.say(f"  {question}: {case} {work} {peer}")
                size = n if options.n is None else options.n
                new.append(fresh.measure(question, case, work, peer, size))
    answered = [record for record in new if record is not None]
    _show(measured, answered, targets.judge(measured, answered), before)
    _write(options.json, before, measured, answered)
    for path in [options.json, *charts.draw(measured, options.charts)]:
        print(f"wrote {path}")


def _write(file: Path, before: dict, measured: list, new: list) -> None:
    from benchmarks import targets  # noqa: PLC0415

    file.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "machine": before,
        "records": [dataclasses.asdict(r) for r in measured],
        "fresh": [dataclasses.asdict(r) for r in new],
        "targets": [v._asdict() for v in targets.judge(measured, new)],
    }
    file.write_text(json.dumps(found, indent=1))


def _show(measured: list, new: list, verdicts: list, before: dict) -> None:
    from benchmarks import fresh, programme, records, tables  # noqa: PLC0415
    from benchmarks.cases import CASES  # noqa: PLC0415

    versions = ", ".join(f"{k} {v}" for k, v in before["versions"].items() if v)
    print(f"{before['cpu']}, {before['threads']} threads, {', '.join(before['simd'])}; {versions}")
    print(f"load average before {before['load']}, after {records.machine()['load']}\n")
    parts = {r.part for r in measured}
    if programme.COMPARE in parts:
        print(f"## Peers\n\n{tables.comparisons(measured)}\n")
    if programme.SCALING in parts:
        print(f"## Trajectories per second, Lorenz sweep\n\n{tables.scaling(measured)}\n")
    for case in dict.fromkeys(r.case for r in measured if r.part == programme.PRECISION):
        title = CASES[case].title
        print(f"## Time of a trajectory and error, {title}\n\n{tables.precision(measured, case)}\n")
    if firsts := [r for r in new if r.question == fresh.FIRST]:
        title = "First calls of new processes, nothing cached: trace, compile, run"
        print(f"## {title}\n\n{tables.first_calls(firsts)}\n")
    if grown := [r for r in new if r.question == fresh.MEMORY]:
        print(f"## Growth of a process during a call\n\n{tables.memory(grown)}\n")
    if verdicts:
        print(f"## Targets\n\n{tables.targets(verdicts)}\n")


if __name__ == "__main__":
    main()
