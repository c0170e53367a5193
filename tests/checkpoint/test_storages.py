"""Every storage gives back what it was given, and the same bits of every gradient."""

import gc
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoint.disk_options import DISK_NAMES, STORAGE_NAMES, disk, make_storage
from checkpoint.loops import RATE, STATE, scan_loss, scan_with, while_loss, while_with
from pullback.checkpoint import (
    RAM,
    Disk,
    Host,
    HRevolve,
    Online,
    Revolve,
    Tiered,
    TwoLevel,
    storage_host,
)
from repo_files import ROOT

LOOPS = {
    "scan": (scan_loss, scan_with, Revolve(3)),
    "two levels": (scan_loss, scan_with, TwoLevel(3, 1)),
    "three costs": (scan_loss, scan_with, HRevolve(1, 2)),
    "while": (while_loss, while_with, Online(3)),
}


def gradient(name, storage):
    loss, run, scheme = LOOPS[name]
    f = loss(run(scheme=scheme, storage=storage, block=2, mode="host"))
    return jax.value_and_grad(f, (0, 1))(RATE, STATE)


@pytest.fixture(scope="module")
def wanted():
    return {name: gradient(name, RAM()) for name in LOOPS}


def assert_same_bits(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert (type(a), a.dtype, a.shape) == (type(b), b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("name", STORAGE_NAMES)
def test_gradients_have_the_same_bits(name, wanted, tmp_path):
    with make_storage(name, tmp_path / "s") as storage:
        for loop, want in wanted.items():
            assert_same_bits(gradient(loop, storage), want)
        gc.collect()
        assert storage.bytes_on_disk() < 4000, "rows are used again"
    assert not (tmp_path / "s").exists()


def trees(rng):
    key = jax.random.key(7)
    yield {"u": jnp.asarray(rng.normal(size=(3, 4))), "n": None, "i": jnp.arange(3, dtype=jnp.int8)}
    yield (key, jax.random.split(key, 2), jnp.bool_(True), jnp.array(1 + 2j))
    yield [jnp.ones((2, 3), jnp.bfloat16), jnp.zeros((0, 5)), jnp.float32(np.nan), -jnp.zeros(())]
    yield np.asfortranarray(rng.normal(size=(5, 2)))
    yield ()


@pytest.mark.parametrize("name", STORAGE_NAMES)
def test_leaves_of_every_kind_come_back(name, rng, tmp_path):
    with make_storage(name, tmp_path / "s") as storage:
        kept = dict(enumerate(trees(rng)))
        for is_written in (False, True):
            for slot, tree in kept.items():
                storage.put_in_tier("disk", slot, tree)
            if is_written:
                storage.flush()
            for slot, tree in kept.items():
                assert_same_bits(storage.get(slot), tree)
                storage.prefetch(slot)
                assert_same_bits(storage.get(slot), tree)
        for slot in kept:
            storage.discard(slot)
            with pytest.raises(KeyError):
                storage.get(slot)


@pytest.mark.parametrize("name", DISK_NAMES)
def test_large_arrays_come_back(name, rng, tmp_path):
    # More than one piece of a compressor; neighbours are alike, so that they shrink.
    smooth = np.cumsum(rng.normal(size=700_000))
    tree = (jnp.asarray(smooth), np.arange(5_000_000, dtype=np.int8), rng.bytes(0))[:2]
    with disk(name, tmp_path) as storage:
        storage.put(0, tree)
        storage.flush()
        assert_same_bits(storage.get(0), tree)


def test_numpy_can_read_the_file(tmp_path):
    with Disk(tmp_path) as storage:
        for slot in range(3):
            storage.put(slot, {"u": jnp.full(4, float(slot)), "i": np.int32(slot)})
        storage.flush()
        (file,) = tmp_path.glob("*.npy")
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
        assert rows["slot"].tolist() == [0, 1, 2]
        assert rows["leaf_0"].tolist() == [0, 1, 2]  # leaves are sorted by name
        assert rows["leaf_1"][2].tolist() == [2.0] * 4


def test_hdf5_tools_can_read_the_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    with Disk(tmp_path, format="hdf5") as storage:
        storage.put(0, {"u": jnp.arange(4.0)})
        storage.flush()
    # The files go with the storage, unless they are preserved.
    with Disk(tmp_path, format="hdf5") as storage:
        storage.put(0, {"u": jnp.arange(4.0)})
        storage.preserve(True)
    (path,) = tmp_path.glob("*.h5")
    with h5py.File(path) as file:
        assert file["leaf_0"][0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_tiers_are_where_the_schedule_wants_them(tmp_path):
    with Tiered(RAM(), Disk(tmp_path)) as storage:
        storage.put_in_tier("disk", 0, (jnp.ones(8),))
        storage.flush()
        used = storage.bytes_on_disk()
        assert used >= 64
        storage.put(1, (jnp.ones(8),))
        storage.put_in_tier("ram", 0, (jnp.zeros(8),))  # moves
        storage.put_in_tier("disk", 1, (jnp.full(8, 2.0),))
        storage.flush()
        assert storage.bytes_on_disk() == used
        assert [float(storage.get(i)[0][0]) for i in (0, 1)] == [0.0, 2.0]
        storage.discard(5)
    with pytest.raises(TypeError, match="`disk`: expected a storage, got 'x'"):
        Tiered(RAM(), "x")  # pyright: ignore[reportArgumentType]


def test_host_pins_what_is_elsewhere(monkeypatch):
    monkeypatch.setattr(storage_host, "_is_on_host", lambda _: False)
    with Host() as storage:
        tree = (jnp.arange(3.0), np.ones(2))
        storage.put(0, tree)
        kept = storage._kept[0]
        assert kept[0].sharding.memory_kind == "pinned_host"
        assert kept[1] is tree[1]
        assert storage.get(0)[0].sharding == tree[0].sharding
        assert_same_bits(storage.get(0), tree)
    assert Host().compiles, "on a CPU it is RAM"


SHARDED = """
import jax, numpy as np, jax.numpy as jnp, sys
from jax.sharding import NamedSharding, PartitionSpec as P
from pullback.checkpoint import *
jax.config.update("jax_enable_x64", True)
mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
place = NamedSharding(mesh, P("i"))
x = jax.device_put(jnp.arange(8.0), place)
for storage in (RAM(), Host(), Disk(sys.argv[1])):
    storage.put(0, (x,)); storage.flush()
    back = storage.get(0)[0]
    assert back.sharding == place and np.array_equal(back, x), storage
    def loss(x):
        step = lambda c, _: (c + 0.1 * jnp.sin(jnp.roll(c, 1)), None)
        return jnp.sum(checkpointed_scan(step, x, None, 20, scheme=Revolve(3), storage=storage,
                                         block=2, mode="host")[0] ** 2)
    grad = jax.grad(loss)(x)
    first = grad if isinstance(storage, RAM) and not isinstance(storage, Host) else first
    assert np.array_equal(grad, first) and grad.sharding == place
"""


@pytest.mark.slow
def test_sharded_arrays_stay_sharded(tmp_path):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-c", SHARDED, str(tmp_path / "s")]
    subprocess.run(command, env=environment, check=True)
