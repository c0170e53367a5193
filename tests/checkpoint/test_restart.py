"""A loop that is interrupted anywhere goes on from there, with the same bits in the result."""

import json
import os
import shutil
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoint import restart_loop
from checkpoint.loops import EXACT
from checkpoint.restart_loop import BLOCK, INIT, KINDS, N_STEPS, PARAMS, bits, forcing, loss, step
from pullback.checkpoint import (
    RAM,
    CheckpointModeError,
    Disk,
    HRevolve,
    Nested,
    Online,
    Periodic,
    ResumeError,
    Revolve,
    StorageError,
    StoreAll,
    TwoLevel,
    save_adjoint_fields,
    value_and_grad_loop,
)
from pullback.checkpoint.disk import npy_file
from pullback.checkpoint.driver import follow, manifest
from pullback.testing import assert_close


def truth(n_steps=N_STEPS):
    def whole(v, params):
        def body(carry, x):
            return step(carry, x, params), None

        carry = jax.lax.scan(body, (INIT[0], v, INIT[2]), forcing()[:n_steps])[0]
        return loss(carry, params)

    return jax.value_and_grad(whole, (0, 1))(INIT[1], PARAMS)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    return bits(restart_loop.run(tmp_path_factory.mktemp("run") / "r"))


@pytest.mark.parametrize(
    "n_steps",
    [0, N_STEPS, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, BLOCK, BLOCK + 1))],
)
def test_is_the_gradient(n_steps, tmp_path):
    value, (init_bar, params_bar) = value_and_grad_loop(
        step, loss, INIT, PARAMS, xs=forcing()[:n_steps], directory=tmp_path, block=BLOCK,
        scheme=Revolve(3),
    )  # fmt: skip
    assert_close((value, (init_bar[1], params_bar)), truth(n_steps), rtol=EXACT, atol=EXACT)
    assert init_bar[0].dtype == init_bar[2]["key"].dtype == jax.dtypes.float0
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(
    "scheme",
    [
        HRevolve(1, 2),
        Periodic(5),
        *(
            pytest.param(scheme, marks=pytest.mark.slow)
            for scheme in (Online(3), TwoLevel(3, 2), Nested(2), StoreAll())
        ),
    ],
    ids=str,
)
def test_every_scheme(scheme, tmp_path, wanted):
    value, (init_bar, params_bar) = value_and_grad_loop(
        step, loss, INIT, PARAMS, xs=forcing(), directory=tmp_path, block=BLOCK, scheme=scheme
    )
    assert_close((value, (init_bar[1], params_bar)), truth(), rtol=EXACT, atol=EXACT)


class Crashes:
    """Copies what is on disk in the middle of every write: what a killed process leaves.

    Attributes:
        copies: Folders, and how many pieces of work had been recorded at the time.
    """

    def __init__(self, monkeypatch, root, every):
        self.root, self.every = root, every
        self.copies, self.n_writes, self.n_recorded = [], 0, 0
        self._write, self._lock = os.pwrite, threading.Lock()
        monkeypatch.setattr(npy_file.os, "pwrite", self.pwrite)
        for name in ("_record_state", "_record_adjoint"):
            self.count(monkeypatch, name, getattr(follow.Follower, name))

    def count(self, monkeypatch, name, record):
        def counted(follower, *args):
            record(follower, *args)
            self.n_recorded += 1

        monkeypatch.setattr(follow.Follower, name, counted)

    def pwrite(self, file, data, at):
        # No other thread may write meanwhile, or the copy would be of no one moment.
        with self._lock:
            half = len(data) // 2
            self._write(file, data[:half], at)
            self.n_writes += 1
            if self.n_writes % self.every == 0:
                copy = self.root / f"copy-{len(self.copies)}"
                ignored = shutil.ignore_patterns("lock", "copy-*")
                for end in ("", "-storage"):
                    if (self.root / f"run{end}").exists():
                        shutil.copytree(f"{self.root}/run{end}", f"{copy}{end}", ignore=ignored)
                self.copies.append((copy, self.n_recorded))
            return half + self._write(file, data[half:], at + half)


class Worker:
    """Counts the blocks that are run."""

    def __init__(self, monkeypatch):
        self.n = 0
        for name in ("advance", "turn"):
            monkeypatch.setattr(follow, name, self.counting(getattr(follow, name)))

    def counting(self, function):
        def counted(*args):
            self.n += 1
            return function(*args)

        return counted


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("default", 7),
        ("other disk", 19),
        ("tiered", 19),
        ("RAM", 19),
        *(pytest.param(kind, 1, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_killed_at_any_write(kind, every, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        crashes = Crashes(patch, tmp_path, every)
        want = bits(restart_loop.run(tmp_path / "run", kind))
    worker = Worker(monkeypatch)
    restart_loop.run(tmp_path / "again", kind)
    whole = worker.n
    assert len(crashes.copies) > 10
    for copy, n_recorded in crashes.copies:
        worker.n = 0
        with warnings.catch_warnings():
            # Being killed while a snapshot is written is all right: its state is in hand.
            warnings.filterwarnings("ignore", message="A snapshot is lost")
            assert bits(restart_loop.run(copy, kind)) == want
        if kind in ("default", "other disk"):
            # One piece: a block forward, a block back, or the end, which is three calls.
            assert worker.n <= whole - n_recorded + 3, (copy, n_recorded)


def test_kinds_of_storage_may_change_on_the_way(tmp_path, wanted):
    class Stop(Exception):
        pass

    def stop(field):
        if field.step < 30:
            raise Stop

    for kind in ("default", "RAM"):
        with pytest.raises(Stop):
            restart_loop.run(tmp_path / "r", kind, callback=stop)
    assert bits(restart_loop.run(tmp_path / "r")) == wanted
    assert bits(restart_loop.run(tmp_path / "r")) == wanted, "and again"


def test_a_storage_can_be_used_again_after_an_interruption(tmp_path, wanted, monkeypatch):
    calls = []

    def stop_once(field):
        calls.append(field.step)
        if field.step == 28 and calls.count(28) == 1:
            raise KeyboardInterrupt

    options = dict(xs=forcing(), directory=tmp_path / "r", scheme=Revolve(4), block=BLOCK)
    with Disk(tmp_path / "s") as storage:
        options |= {"storage": storage, "callback": stop_once}
        with pytest.raises(KeyboardInterrupt):
            value_and_grad_loop(step, loss, INIT, PARAMS, **options)
        assert len(storage) == 0
        worker = Worker(monkeypatch)
        assert bits(value_and_grad_loop(step, loss, INIT, PARAMS, **options)) == wanted
        assert worker.n < 25, "its snapshots were found"
        assert len(storage) == 0
    assert calls == [*range(60, 27, -4), *range(28, -1, -4)]


def test_a_damaged_snapshot_is_computed_again(tmp_path, wanted):
    def stop(field):
        if field.step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restart_loop.run(tmp_path / "r", callback=stop)
    (file,) = (tmp_path / "r" / "snapshots").glob("*.npy")
    data = bytearray(file.read_bytes())
    for at in range(4096 + 60, len(data), 40):
        data[at] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match=r"A snapshot is lost, .* is damaged"):
        assert bits(restart_loop.run(tmp_path / "r")) == wanted


def test_a_full_disk_can_be_emptied(tmp_path, wanted):
    options = dict(xs=forcing(), directory=tmp_path / "r", scheme=Revolve(4), block=BLOCK)
    full = Disk(tmp_path / "s", max_bytes=300)
    with full as storage, pytest.raises(StorageError, match="`max_bytes`"):
        value_and_grad_loop(step, loss, INIT, PARAMS, storage=storage, **options)
    assert bits(value_and_grad_loop(step, loss, INIT, PARAMS, **options)) == wanted


def test_begins_anew_if_asked(tmp_path, monkeypatch, wanted):
    restart_loop.run(tmp_path / "r")
    worker = Worker(monkeypatch)
    assert bits(restart_loop.run(tmp_path / "r")) == wanted
    assert worker.n == 0, "the result was there"
    assert bits(restart_loop.run(tmp_path / "r", resume=False)) == wanted
    assert worker.n > 0


def scaled(carry, x, params):
    i, v, more = carry
    return i + 1, v * params["rate"], more


def other_rule(factor):
    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, bar: (factor * bar,))

    def with_rule(carry, x, params):
        i, v, more = carry
        return i + 1, identity(v), more

    return with_rule


def closing_over(value):
    array = jnp.full(3, value)

    def with_array(carry, x, params):
        i, v, more = carry
        return i + 1, v + array, more

    return with_array


CHANGES = {
    "code": ({"step": scaled}, "step differs"),
    "rule": ({"step": other_rule(3.0)}, "step differs"),
    "closed over": ({"step": closing_over(3.0)}, "what step closes over differs"),
    "loss": ({"loss": lambda c, p: jnp.sum(c[1])}, "loss differs"),
    "dtype": (
        {"init": (0, INIT[1].astype(jnp.float32), INIT[2]), "step": lambda c, x, p: c},
        r"types of init: .*float64\[3\].* there, .*float32\[3\].* here",
    ),
    "value": ({"params": PARAMS | {"rate": 1.4}}, "values of params differs"),
    "rows": ({"xs": forcing() + 1.0}, "values of xs differs"),
    "length": ({"xs": forcing()[:8]}, "length: 61 there, 8 here"),
    "block": ({"block": 5}, "block: 4 there, 5 here"),
    "scheme": (
        {"scheme": Revolve(5)},
        r"scheme: Revolve\(n_snapshots=4\) there, Revolve\(n_snapshots=5\) here",
    ),
}


def call(directory, step=step, loss=loss, init=INIT, params=PARAMS, **options):
    options = {"xs": forcing(), "scheme": Revolve(4), "block": BLOCK} | options
    return value_and_grad_loop(step, loss, init, params, directory=directory, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_another_loop_is_refused(change, tmp_path):
    options, message = CHANGES[change]
    first = {"rule": {"step": other_rule(2.0)}, "closed over": {"step": closing_over(2.0)}}
    call(tmp_path, **first.get(change, {}))
    with pytest.raises(ResumeError, match=f"`directory`: .*{message}.* resume=False to begin anew"):
        call(tmp_path, **options)
    if change == "dtype":
        assert call(tmp_path, resume=False, **options)[1][0][1].dtype == jnp.float32


def test_the_same_functions_traced_again_are_the_same(tmp_path, monkeypatch):
    call(tmp_path, step=other_rule(2.0))
    worker = Worker(monkeypatch)
    call(tmp_path, step=other_rule(2.0))
    assert worker.n == 0


def test_another_machine_is_a_warning(tmp_path):
    call(tmp_path)
    path = tmp_path / "manifest.json"
    found = json.loads(path.read_text())
    found["machine"]["processor"] = "abacus"
    path.write_text(json.dumps(found))
    with pytest.warns(UserWarning, match=r"processor: abacus there, .* last bits"):
        call(tmp_path)
    path.write_text("{")
    with pytest.raises(StorageError, match=r"expected .* to be the manifest"):
        call(tmp_path)
    assert found["version"] == manifest._VERSION


def test_two_on_one_directory(tmp_path):
    def again(_):
        with pytest.raises(StorageError, match=r"`directory`: .* in use by this process"):
            call(tmp_path)

    call(tmp_path, callback=again, every=40)


def test_adjoint_fields(tmp_path):
    seen = []
    save = save_adjoint_fields(tmp_path / "fields")

    def keep(field):
        seen.append(field)
        save(field)

    _, (init_bar, params_bar) = call(tmp_path / "r", callback=keep, every=8)
    assert [field.step for field in seen] == [56, 48, 40, 32, 24, 16, 8, 0]

    def rest(v, params, start):
        def body(carry, x):
            return step(carry, x, params), None

        first = jax.lax.scan(lambda c, x: (step(c, x, PARAMS), None), INIT, forcing()[:start])[0]
        state = (first[0], first[1] + v, first[2])
        return loss(jax.lax.scan(body, state, forcing()[start:])[0], params)

    for field in (seen[0], seen[4]):
        want = jax.grad(rest, (0, 1))(jnp.zeros(3), PARAMS, field.step)
        assert_close((field.carry_bar[1], field.params_bar), want, rtol=EXACT, atol=EXACT)
    np.testing.assert_array_equal(seen[-1].carry_bar[1], init_bar[1])
    with np.load(tmp_path / "fields" / "adjoint_000000000.npz") as file:
        assert sorted(file) == [
            "carry_bar[1]", "params_bar['rate']", "params_bar['weights']", "step",
        ]  # fmt: skip
        np.testing.assert_array_equal(file["params_bar['weights']"], params_bar["weights"])
    assert len(list((tmp_path / "fields").iterdir())) == 8


def test_the_last_state_has_an_adjoint(tmp_path):
    seen = []
    call(tmp_path, xs=forcing()[:8], callback=lambda field: seen.append(field.step))
    assert seen == [8, 4, 0]


def test_progress_bar(tmp_path, capsys):
    def stop(field):
        if field.step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(tmp_path, callback=stop)
    call(tmp_path, progress=True)  # counts what the first has done
    err = capsys.readouterr().err
    scheme, n = Revolve(4), N_STEPS // BLOCK
    forward = scheme.cost(n).forward_steps * BLOCK + BLOCK + 1
    assert f"forward {forward}, back {N_STEPS}" in err
    assert "100%" in err
    assert "memory " in err
    assert "disk " in err


MISTAKES = {
    "step": ({"step": 3}, TypeError, "`step`: expected a function, got 3"),
    "loss": ({"loss": lambda c, p: c[1]}, TypeError, "`loss`: expected a function .* one real"),
    "carry": ({"step": lambda c, x, p: (*c[:2], 0)}, TypeError, "`step`: expected a new carry"),
    "storage": ({"storage": "disk"}, TypeError, "`storage`: expected a storage"),
    "callback": ({"callback": 3}, TypeError, "`callback`: expected a function, got 3"),
    "every": ({"every": 6}, ValueError, "`every`: expected a multiple of `block`, which is 4"),
    "length": ({"length": 3}, ValueError, "expected 3 rows, one per step"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, tmp_path):
    options, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        call(tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()


def test_traced_values_are_refused(tmp_path):
    with pytest.raises(CheckpointModeError, match="expected concrete values"):
        jax.grad(lambda rate: call(tmp_path / "r", params=PARAMS | {"rate": rate})[0])(1.3)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError, match="`directory`: expected a folder"):
        call(file)
    assert len(RAM()) == 0
