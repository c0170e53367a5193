"""The benchmark of loops of fields: what it measures is right, at small sizes."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from benchmarks import checkpoint_fields as fields
from benchmarks import shallow_water as water_model
from pullback.testing import tol

# They compile other libraries' solvers, and say nothing about the package.
pytestmark = pytest.mark.slow

LOOP = water_model.Loop(8, 32, 4)
# A step rounds about ten times on the longest chain, and its reverse as often.
EXACT = tol("float64", n_ops=20 * LOOP.n_steps)


@pytest.fixture(scope="module")
def makers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    with (
        pb.RAM() as ram,
        pb.Disk(folder / "all") as disk,
        pb.Tiered(pb.RAM(), pb.Disk(folder / "some")) as tiered,
    ):
        yield fields.peers(LOOP, (ram, disk, tiered))


@pytest.fixture(scope="module")
def truth():
    peer = water_model.plain_scan(LOOP)
    return fields.gradient(peer)(*water_model.initial_water(LOOP.n))


NAMES = (
    "Revolve", "Online", "TwoLevel", "Revolve, block=4", "Periodic", "StoreAll", "Disk, block=4",
    "RAM, on the host", "Disk, on the host", "Tiered, on the host",
    fields.SCAN, "nested jax.checkpoint", "equinox scan", "diffrax Euler",
)  # fmt: skip
OPTIONAL = {"equinox scan": "equinox", "diffrax Euler": "diffrax"}


def test_all_peers_are_tested(makers):
    absent = {name for name, module in OPTIONAL.items() if not importlib.util.find_spec(module)}
    assert set(makers) == set(NAMES) - absent


@pytest.mark.parametrize("name", NAMES)
def test_peers_have_the_gradient_of_a_scan(makers, truth, name):
    pytest.importorskip(OPTIONAL.get(name, "jax"))
    found = fields.gradient(makers[name]())(*water_model.initial_water(LOOP.n))
    assert fields.largest_error(found, truth) < EXACT


def test_the_gradient_is_that_of_differences(truth):
    water, friction = water_model.initial_water(LOOP.n)
    run = jax.jit(water_model.plain_scan(LOOP).run)

    def loss(drag):
        last = run(water, friction._replace(drag=drag))
        return float(sum(jnp.sum(field**2) for field in last))

    step = 1e-3  # the drag's own effect is smooth: the error of a central difference is its square
    slope = (loss(friction.drag + step) - loss(friction.drag - step)) / (2 * step)
    assert float(truth[1].drag) == pytest.approx(slope, rel=1e-4)


def test_a_shift_has_the_transpose_of_a_roll(rng):
    field, field_bar = rng.standard_normal((2, 5, 5))
    for shift, axis in ((1, 0), (-1, 1)):
        out, pull = jax.vjp(lambda x, s=shift, a=axis: water_model.shifted(s, a, x), field)
        want, pull_roll = jax.vjp(lambda x, s=shift, a=axis: jnp.roll(x, s, a), field)
        np.testing.assert_array_equal(out, want)
        np.testing.assert_array_equal(pull(field_bar)[0], pull_roll(field_bar)[0])


def test_mass_is_conserved_and_the_flow_lives_on():
    water, friction = water_model.initial_water(32)
    last = jax.jit(water_model.plain_scan(water_model.Loop(32, 4096, 1)).run)(water, friction)
    mass, before = (float(jnp.sum(w.depth)) for w in (last, water))
    # Every step rounds each of the depths a few times, in both directions.
    assert mass == pytest.approx(before, rel=tol("float64", n_ops=4096))
    assert 1e-3 < float(jnp.max(jnp.abs(last.u))) < 1


@pytest.mark.parametrize(
    ("loop", "block", "forward"),
    [
        # t(32, 4) = 3 * 32 - C(7, 5), since C(6, 4) = 15 < 32 <= C(7, 4) = 35; and the taped ones.
        (LOOP, 1, 75 + 32),
        # t(8, 4) = 2 * 8 - C(6, 5) blocks.
        (LOOP, 4, 4 * 10 + 32),
        # t(4096, 64) = 3 * 4096 - C(67, 65).
        (water_model.Loop(64, 4096, 64), 1, 10077 + 4096),
    ],
)
def test_bound_is_the_optimum_of_the_tables(loop, block, forward):
    assert fields.bound_steps(loop, block) == (forward, loop.n_steps)


def test_predictions_count_snapshots_and_tape(makers):
    state = 3 * 8 * 8 * 8  # three fields of 8 x 8 numbers of 8 bytes
    tape = fields.tape_bytes(LOOP)
    assert fields.predicted(LOOP, makers["Revolve, block=4"]()) == (4 * state, 4 * tape)
    assert fields.predicted(LOOP, makers[fields.SCAN]()) == (0, 32 * tape)
    assert fields.predicted(LOOP, makers["Periodic"]()) == (8 * state, 4 * tape)


def test_the_table_has_a_row_for_each_peer(makers):
    found = {name: makers[name]() for name in (fields.SCAN, "Revolve, block=4")}
    figures, times = fields.measure(LOOP, found, repeats=1)
    figures["Revolve, block=4"] = figures["Revolve, block=4"]._replace(growth=1_500_000)
    head, _, *rows = fields.report(LOOP, found, figures, times).splitlines()
    assert [cell.strip() for cell in head.split("|")[1:-1]] == list(fields.HEAD)
    assert [row.split("|")[1].strip() for row in rows[:2]] == [fields.SCAN, "Revolve, block=4"]
    assert "1.5 MB" in rows[1]
    assert rows[0].split("|")[7].strip() == "1.00"  # beside itself


def test_growth_holds_the_tape_of_a_scan():
    loop = water_model.Loop(32, 128, 4)
    grown = fields.growth_in_new_process(loop, fields.SCAN)
    # A tape of 20 MB; the compiler may keep less of a step than `jax.vjp` by itself does.
    assert grown is not None
    assert grown > 0.5 * loop.n_steps * fields.tape_bytes(loop)
