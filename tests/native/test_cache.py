"""The object cache: what it trusts, what it survives, what it removes."""

import os
import time
import warnings
from pathlib import Path

import pytest

from pullback.native import cache

KEY = cache.cache_key("a kernel")
PAYLOAD = b"\x7fELF" + bytes(range(256)) * 8


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path / "kernels" / "objects"


@pytest.fixture
def entry(directory: Path) -> Path:
    cache.write_entry(KEY, PAYLOAD)
    (path,) = directory.iterdir()
    return path


def test_what_was_written_is_read(entry: Path) -> None:
    assert cache.read_entry(KEY) == PAYLOAD
    assert cache.cache_size() == (1, entry.stat().st_size)


def test_an_absent_entry_is_none(directory: Path) -> None:
    assert cache.read_entry(KEY) is None
    assert cache.cache_size() == (0, 0)
    assert not directory.exists()  # reading makes nothing


def test_keys_tell_their_parts_apart() -> None:
    assert cache.cache_key("ab", "c") != cache.cache_key("a", "bc")
    assert cache.cache_key("a", b"b") == cache.cache_key("a", "b")


def test_directories_and_entries_are_private_whatever_the_umask(directory: Path) -> None:
    old = os.umask(0o000)
    try:
        cache.write_entry(KEY, PAYLOAD)
    finally:
        os.umask(old)
    (entry,) = directory.iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (directory.parent, directory, entry)]
    assert modes == [0o700, 0o700, 0o600]
    assert cache.read_entry(KEY) == PAYLOAD


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data + b"\x00",
        lambda data: b"X" + data[1:],
        lambda data: data[:-5] + b"\xff" + data[-4:],
    ],
    ids=["empty", "half header", "truncated", "longer", "magic", "payload"],
)
def test_a_damaged_entry_is_ignored_and_replaced(entry: Path, damage) -> None:
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.read_entry(KEY) is None
    cache.write_entry(KEY, PAYLOAD)
    assert cache.read_entry(KEY) == PAYLOAD


def test_an_entry_under_another_name_is_ignored(entry: Path) -> None:
    other = cache.cache_key("another kernel")
    entry.rename(entry.with_name(entry.name.replace(KEY, other)))
    assert cache.read_entry(other) is None


def test_an_entry_that_others_may_write_is_ignored(entry: Path) -> None:
    entry.chmod(0o620)
    assert cache.read_entry(KEY) is None
    entry.chmod(0o644)  # readable by others does no harm
    assert cache.read_entry(KEY) == PAYLOAD


def test_a_link_is_ignored(entry: Path) -> None:
    target = entry.rename(entry.parent.parent / "elsewhere")
    entry.symlink_to(target)
    assert cache.read_entry(KEY) is None


@pytest.mark.parametrize("level", [0, 1], ids=["objects", "its parent"])
def test_a_directory_that_others_may_write_is_not_used_and_said_once(
    entry: Path, level: int
) -> None:
    shared = entry.parents[level]
    shared.chmod(0o770)
    with pytest.warns(UserWarning, match=rf"`{shared}` .*writable by others; run `chmod 700`"):
        assert cache.read_entry(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write_entry(cache.cache_key("new"), PAYLOAD)
    shared.chmod(0o700)
    assert cache.cache_size()[0] == 1


def test_another_user_s_directory_is_not_used(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: entry.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert cache.read_entry(KEY) is None


def test_a_disk_that_refuses_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "file"))
    cache.write_entry(KEY, PAYLOAD)
    assert cache.read_entry(KEY) is None
    assert cache.cache_size() == (0, 0)


def test_a_full_disk_is_no_error_and_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    cache.write_entry(KEY, PAYLOAD)
    assert list(directory.iterdir()) == []


def test_pruning_removes_the_least_recently_used(directory: Path) -> None:
    keys = [cache.cache_key(str(i)) for i in range(4)]
    for age, key in zip((40, 30, 20, 10), keys, strict=True):
        cache.write_entry(key, PAYLOAD)
        past = time.time() - age
        os.utime(directory / f"{key}.object", (past, past))
    size = cache.cache_size()[1] // 4
    assert cache.read_entry(keys[0]) is not None  # now it is the newest
    assert cache.prune(4 * size) == 0
    assert cache.prune(2 * size + size // 2) == 2
    assert [cache.read_entry(key) is not None for key in keys] == [True, False, False, True]


def test_writing_bounds_the_size(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "SIZE_LIMIT", 3 * (len(PAYLOAD) + 200))
    for i in range(10):
        cache.write_entry(cache.cache_key(str(i)), PAYLOAD)
    assert 1 <= cache.cache_size()[0] <= 3


def test_abandoned_temporary_files_are_removed(directory: Path) -> None:
    cache.write_entry(KEY, PAYLOAD)
    old, young = directory / "a.new", directory / "b.new"
    for path, age in ((old, 7200), (young, 0)):
        path.write_bytes(b"half an object")
        os.utime(path, (time.time() - age, time.time() - age))
    cache.prune(0)
    assert not old.exists()
    assert young.exists()


def test_clearing_removes_every_entry(entry: Path) -> None:
    assert cache.clear_cache() == 1
    assert cache.cache_size() == (0, 0)


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")
    assert cache.cache_directory() == Path("/a/objects")
    monkeypatch.delenv("PULLBACK_CACHE_DIR")
    assert cache.cache_directory() == Path("/b/pullback/objects")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_directory() == Path("/c/.cache/pullback/objects")


def test_an_empty_setting_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "")
    assert cache.cache_directory() is None
    cache.write_entry(KEY, PAYLOAD)
    assert cache.read_entry(KEY) is None
    assert cache.cache_size() == (0, 0)
