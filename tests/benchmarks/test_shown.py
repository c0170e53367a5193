"""Tables, targets, charts and the command: made from few numbers, without a clock."""

import json
import subprocess
import sys

import pytest
from benchmarks.fresh import FIRST, LARGE, MEMORY, Growth
from benchmarks.peers import DIFFRAX, KERNEL, KERNEL_DEFAULT
from benchmarks.records import FreshRecord, Record
from benchmarks.solver import GRADIENT, PRIMAL
from benchmarks.timing import interleave

from benchmarks import charts, programme, tables, targets
from repo_files import ROOT


def record(peer=KERNEL, part=programme.COMPARE, **changes):
    values = {
        "part": part, "case": "lorenz", "work": PRIMAL, "dtype": "float64", "tol": 1e-6,
        "peer": peer, "n": 20_000, "n_measured": 20_000, "median": 0.02, "best": 0.019, "count": 7,
        "first": 0.5, "error": 1e-6, "largest_error": 2e-5, "mean_steps": 168.25, "n_failed": 0,
        "busy": 0.987,
    }  # fmt: skip
    return Record(**(values | changes))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_comparison_table():
    slow = record(DIFFRAX, n_measured=2_000, median=0.25, best=0.2, busy=None, first=None)
    head, rule, first, second = tables.comparison([record(), slow]).splitlines()
    assert len({len(line) for line in (head, rule, first, second)}) == 1
    assert cells(first) == [
        "float64", "1e-06", "kernel", "20,000", "20.0 ms", "19.0 ms", "1", "1", "1.0e-06",
        "2.0e-05", "168.2", "0", "98.7 %", "500 ms",
    ]  # fmt: skip
    assert cells(second)[2:8] == ["diffrax", "2,000", "2.50 s (x 10)", "2.00 s", "125", "125"]
    assert set(rule) <= set("|:-")


@pytest.mark.parametrize(
    ("value", "text"), [(123.4, "123 s"), (1.0, "1.00 s"), (0.0123, "12.3 ms"), (4e-7, "0.40 µs")]
)
def test_times_are_written_with_a_unit(value, text):
    assert tables.seconds(value) == text


def test_scaling_and_precision_tables():
    rows = [record(part=programme.SCALING, n=n, n_measured=n, median=n / 1e6) for n in (1000, 10)]
    assert cells(tables.scaling(rows).splitlines()[2]) == ["10", "1,000,000"]
    rows = [record(part=programme.PRECISION, tol=tol, error=tol) for tol in (1e-9, 1e-3)]
    assert cells(tables.precision(rows, "lorenz").splitlines()[2]) == ["1e-03", "1 µs, 1e-03"]


def test_targets_say_what_is_missing():
    measured = [
        record(),
        record(DIFFRAX, median=1.6),
        record(work=GRADIENT, median=0.05),
        record(KERNEL_DEFAULT, work=GRADIENT, median=0.12),
    ]
    fresh = [
        FreshRecord(FIRST, "lorenz", PRIMAL, KERNEL, 20_000, 0.35, None, 0),
        FreshRecord(MEMORY, "lorenz", GRADIENT, KERNEL, LARGE, 3.0, int(162e6), int(16e6)),
    ]
    verdicts = {v.what: v for v in targets.judge(measured, fresh)}
    assert verdicts["lorenz primal against diffrax"][1:] == (">= 100 x", "80 x", "no, 0.80 of it")
    assert verdicts["lorenz gradient / primal"].word == "yes"
    assert verdicts["lorenz gradient, default / primal"].word == "no, 1.20 of it"
    assert verdicts["first call, lorenz primal"][2:] == ("0.35 s", "yes")
    assert verdicts["memory of 10^6 gradients / allowed"].measured == "0.5 x"
    assert "mlp primal against diffrax" not in verdicts
    assert "no, 0.80 of it" in tables.targets(list(verdicts.values()))


def test_jobs_can_be_narrowed():
    few = programme.jobs(False, ("lorenz",), (programme.COMPARE,), None)
    assert {(j.case, j.part) for j in few} == {("lorenz", programme.COMPARE)}
    assert len(programme.jobs(True, ("lorenz",), (programme.COMPARE,), None)) > len(few)
    assert {j.n for j in programme.jobs(False, ("lorenz",), programme.PARTS, 50)} == {50}


def test_everyone_has_a_turn_in_every_round():
    order = []
    calls = {name: (lambda n=name: order.append(n)) for name in "ab"}
    times = interleave(calls, 3)
    assert order[:2] == ["a", "b"]
    assert times["a"].count == order.count("a") >= 3
    assert times["a"].best <= times["a"].median


def test_growth_sees_an_allocation():
    with Growth() as growth:
        block = bytearray(64 << 20)
        block[::4096] = b"x" * len(block[::4096])
    assert growth.peak is None or growth.peak >= 60 << 20


def test_charts_are_drawn(tmp_path):
    rows = [record(part=programme.SCALING, n=n, n_measured=n) for n in (1000, 10_000)]
    rows += [record(part=programme.PRECISION, tol=t, error=t) for t in (1e-3, 1e-6)]
    drawn = charts.draw(rows, tmp_path / "new")
    assert [path.name for path in drawn] == ["throughput.png", "work_precision.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert charts.draw([], tmp_path) == []


def test_command_writes_tables_and_json(tmp_path):
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", "--case", "van_der_pol", "--part", "scaling"]
    more = ["--n", "8", "--repeats", "1", "--json", str(file), "--charts", str(tmp_path)]
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["records"] == []
    done = subprocess.run(
        [*command, "--n", "0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "--n must be at least 1, got 0" in done.stderr
