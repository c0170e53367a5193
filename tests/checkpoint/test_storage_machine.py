"""A storage is a dictionary, whatever is done to it in whatever order."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from checkpoint.disk_options import STORAGE_NAMES, make_storage
from pullback.checkpoint import Disk, StorageError

SLOTS = st.integers(0, 3)
# Bytes of a row of each kind at most: head, numbers, and lengths of compressed pieces.
ROW_BYTES = (40 + 52 + 16, 40 + 36 + 16, 40 + 4 + 8)
N_ROWS = 4


def tree(kind, value):
    """A few structures, so that a slot changes from one file to another."""
    if kind == 0:
        return {"u": jnp.full((3, 2), value), "i": jnp.int32(value)}
    if kind == 1:
        return (np.full(7, value, np.float32), jax.random.key(value), None)
    return [jnp.full((2,), value, jnp.bfloat16)]


def same(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return jax.tree.structure(got) == jax.tree.structure(want)


class StorageMachine(RuleBasedStateMachine):
    """Compares a storage with a dictionary."""

    name = "RAM"

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.n_lives = 0
        self.model, self.kinds = {}, {}
        self.most = [0, 0, 0]
        self.storage = make_storage(self.name, self.folder / "0")

    @rule(slot=SLOTS, kind=st.integers(0, 2), value=st.integers(0, 100), tier=st.booleans())
    def put(self, slot, kind, value, tier):
        self.model[slot], self.kinds[slot] = tree(kind, value), kind
        in_use = [self.kinds[s] for s in self.model]
        self.most = [max(most, in_use.count(k)) for k, most in enumerate(self.most)]
        self.storage.put_in_tier("disk" if tier else "ram", slot, self.model[slot])

    @rule(slot=SLOTS)
    def get(self, slot):
        if slot in self.model:
            assert same(self.storage.get(slot), self.model[slot])
        else:
            with pytest.raises(KeyError):
                self.storage.get(slot)

    @rule(slot=SLOTS)
    def discard(self, slot):
        self.model.pop(slot, None)
        self.storage.discard(slot)

    @rule(slot=SLOTS)
    def prefetch(self, slot):
        self.storage.prefetch(slot)

    @rule()
    def flush(self):
        """Then everything is read from the disk."""
        self.storage.flush()
        self.storage.prefetch(99)
        for slot in self.model:
            self.get(slot)

    @precondition(lambda self: isinstance(self.storage, Disk))
    @rule()
    def be_killed(self):
        """Whatever was flushed is found by the next process."""
        self.storage.flush()
        self.n_lives += 1
        after = self.folder / str(self.n_lives)
        shutil.copytree(self.folder / "0", after, ignore=shutil.ignore_patterns("lock"))
        with make_storage(self.name, after) as heir:
            for slot, kept in self.model.items():
                assert heir.recover(slot, kept)
            for slot, kept in self.model.items():
                assert same(heir.get(slot), kept)
            assert len(heir) == len(self.model)

    @precondition(lambda self: isinstance(self.storage, Disk))
    @rule()
    def stand_by(self):
        """What is set aside is found again by the same process."""
        self.storage.preserve(True)
        for slot, kept in self.model.items():
            self.storage.set_aside(slot)
            with pytest.raises(KeyError):
                self.storage.get(slot)
            assert self.storage.recover(slot, kept)
        self.storage.preserve(False)

    @invariant()
    def takes_no_more_room_than_it_needs(self):
        # Per structure: a row for each slot, and a spare one that keeps what is being replaced.
        rows = zip(self.most, ROW_BYTES, strict=True)
        assert self.storage.bytes_on_disk() <= sum((n + 1) * size for n, size in rows)

    def teardown(self):
        self.storage.flush()
        for slot in self.model:
            self.get(slot)
        self.storage.close()
        assert not (self.folder / "0").exists()
        shutil.rmtree(self.folder)


class TinyDiskMachine(RuleBasedStateMachine):
    """A disk with room for a few rows: it refuses what does not fit, and keeps all else."""

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.model = {}
        self.storage = Disk(self.folder / "s", max_bytes=N_ROWS * (40 + 56))

    @rule(slot=SLOTS, value=st.integers(0, 100))
    def put(self, slot, value):
        new = (np.full(7, float(value)),)
        if len(self.model) < N_ROWS:  # a spare row also while one is replaced
            self.storage.put(slot, new)
            self.model[slot] = new
        else:
            with pytest.raises(StorageError, match="`max_bytes`: expected room"):
                self.storage.put(slot, new)

    @rule(slot=SLOTS)
    def discard(self, slot):
        self.model.pop(slot, None)
        self.storage.discard(slot)

    @invariant()
    def everything_is_there(self):
        for slot, kept in self.model.items():
            assert same(self.storage.get(slot), kept)

    def teardown(self):
        self.storage.close()
        shutil.rmtree(self.folder)


def run(machine, n_examples):
    test = machine.TestCase
    test.settings = settings(max_examples=n_examples, stateful_step_count=25)
    test("runTest").runTest()


@pytest.mark.parametrize("name", STORAGE_NAMES)
def test_is_a_dictionary(name):
    run(type("Machine", (StorageMachine,), {"name": name}), 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORAGE_NAMES)
def test_is_a_dictionary_at_length(name):
    run(type("Machine", (StorageMachine,), {"name": name}), 150)


def test_a_tiny_disk():
    run(TinyDiskMachine, 20)
