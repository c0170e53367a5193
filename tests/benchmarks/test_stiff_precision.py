"""Time against error on stiff problems: published ends are reached, and the figure is drawn."""

import struct

import numpy as np
import pytest
from benchmarks.stiff import Row
from benchmarks.stiff_problems import STIFF

import pullback as pb
from benchmarks import stiff_precision

# They compile other libraries' solvers, and say nothing about the package.
pytestmark = pytest.mark.slow

# Errors in units of |published value| + unit that a tolerance of 1e-9 leaves: measured, times
# about four.
_TIGHT = {"hires": 2e-10, "robertson": 4e-10, "oregonator": 8e-10, "van_der_pol": 2e-9,
          "pollution": 2e-10}  # fmt: skip
# The same at 1e-6, whoever solves: five times the worst of them. The Oregonator's peaks amplify
# errors, and BDF adds up many.
_LOOSE = {"hires": 5e-5, "robertson": 1e-5, "oregonator": 4e-4, "van_der_pol": 4e-5,
          "pollution": 1.5e-5}  # fmt: skip


def error(name, ends, tol):
    return stiff_precision.error_of(STIFF[name], ends(tol))


@pytest.mark.parametrize("name", stiff_precision.TITLES)
def test_published_ends_are_reached(name):
    ends = stiff_precision.kernel_ends(STIFF[name], pb.Rodas5P(), 2)
    assert error(name, ends, 1e-9) < _TIGHT[name]


@pytest.mark.parametrize("method", stiff_precision.METHODS, ids=lambda method: method.name)
def test_methods_come_closer_with_the_tolerance(method):
    ends = stiff_precision.kernel_ends(STIFF["robertson"], method, 2)
    tols = stiff_precision.METHODS[method]
    errors = [error("robertson", ends, tol) for tol in (tols[0], tols[-1])]
    # An error is a hundred tolerances at most; ImplicitEuler's falls with their root alone.
    assert errors[1] < 100 * tols[-1]
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.parametrize("solver", stiff_precision.SCIPY)
@pytest.mark.parametrize("name", stiff_precision.TITLES)
def test_scipy_solves_the_same_problem(name, solver):
    pytest.importorskip("scipy")
    assert error(name, stiff_precision.scipy_ends(STIFF[name], solver), 1e-6) < _LOOSE[name]


@pytest.mark.parametrize(
    ("name", "is_tuned"),
    [
        ("robertson", True),
        ("robertson", False),
        ("van_der_pol", True),
        ("hires", True),
        ("oregonator", True),
        ("pollution", True),
    ],
)
def test_diffrax_solves_the_same_problem(name, is_tuned):
    pytest.importorskip("diffrax")
    ends = stiff_precision.diffrax_ends(STIFF[name], 1, is_tuned)
    assert error(name, ends, 1e-6) < _LOOSE[name]


def test_a_failure_is_said(monkeypatch):
    def ends(tol):
        return np.full(3, np.nan)

    def peers(problem, n):
        return {"somebody": stiff_precision.Peer(ends, (1e-3,), n)}

    monkeypatch.setattr(stiff_precision, "peers", peers)
    rows = stiff_precision.measure("robertson", 2, 1)
    assert "failed" in stiff_precision.table(rows).splitlines()[-1]


def test_peers_have_turns_and_a_look_each(monkeypatch):
    monkeypatch.setattr(stiff_precision, "METHODS", {pb.Rodas5P(): (1e-3, 1e-4)})
    monkeypatch.setattr(stiff_precision, "SCIPY", {"Radau": "SciPy, Radau"})
    monkeypatch.setattr(stiff_precision, "diffrax_ends", _not_installed)
    rows = stiff_precision.measure("robertson", 3, 1)
    assert [row.tol for row in rows["kernel, Rodas5P"]] == [1e-3, 1e-4]
    assert all(row.n == 3 and row.error < 1e-4 for row in rows["kernel, Rodas5P"])
    assert set(rows) <= {"kernel, Rodas5P", "SciPy, Radau"}
    assert all(row.n == 1 for row in rows.get("SciPy, Radau", []))


def _not_installed(*_, **__):
    raise ImportError


def test_figure_is_a_picture_of_the_size_asked_for(tmp_path):
    pytest.importorskip("matplotlib")
    lines = [Row(tol, 1, 1e-6 / tol, tol, 0.0) for tol in (1e-3, 1e-5)]
    failed = [Row(1e-3, 1, 1.0, np.nan, 0.0)]
    rows = {peer: lines for peer in stiff_precision._LOOK}
    found = {name: {**rows, stiff_precision.DIFFRAX: failed} for name in stiff_precision.TITLES}
    file = stiff_precision.draw(found, tmp_path / "new", (12.0, 8.0))
    assert file == tmp_path / "new" / "stiff_precision.png"
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    # Width and height are the first numbers of the first chunk; 150 points an inch.
    assert struct.unpack(">II", head[16:24]) == (1800, 1200)
    assert stiff_precision.draw({"hires": found["hires"]}, tmp_path).is_file()


def test_every_peer_has_a_look():
    kernels = {f"kernel, {method.name}" for method in stiff_precision.METHODS}
    others = {
        *stiff_precision.SCIPY.values(),
        stiff_precision.DIFFRAX,
        stiff_precision.DIFFRAX_TUNED,
    }
    assert set(stiff_precision._LOOK) == kernels | others
    looks = list(stiff_precision._LOOK.values())
    assert len(set(looks)) == len(looks)
