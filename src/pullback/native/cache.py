"""Compiled objects on disk, found by the hash of everything that went into them.

A missing, full, read-only or untrusted disk is never an error: the kernel is compiled again.
An entry is used only if this user owns it and nobody else may write it, and if its header
agrees with its name and its content.

The directory is `$PULLBACK_CACHE_DIR`, else `pullback` in `$XDG_CACHE_HOME` or `~/.cache`;
`PULLBACK_CACHE_DIR=""` turns the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pullback.core.user_warning import warn_user

SIZE_LIMIT = 512 * 1024**2
# Removing a little more than asked for means that not every new entry has to remove another.
_PRUNE_TO = 0.9
_SUFFIX = ".object"
_TEMPORARY = ".new"
_ABANDONED_SECONDS = 3600.0

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_warned: set[str] = set()

_MAGIC = b"pullback-object\x01"
# magic, the key, SHA-256 of the payload, length of the payload
_HEADER = struct.Struct("<16s32s32sQ")


def cache_directory() -> Path | None:
    """Return the directory that objects are kept in, or None when there is none."""
    setting = os.environ.get("PULLBACK_CACHE_DIR")
    if setting is not None:
        return Path(setting) / "objects" if setting else None
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "pullback" / "objects"
    try:
        return Path.home() / ".cache" / "pullback" / "objects"
    except RuntimeError:  # no home directory
        return None


def cache_key(*parts: str | bytes) -> str:
    """Return a key for the parts, which are told apart: ("ab", "c") is not ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read_entry(key: str) -> bytes | None:
    """Return the object kept under `key`, or None; marks the entry as recently used."""
    directory = cache_directory()
    if directory is None or not _is_trusted_directory(directory):
        return None
    path = directory / (key + _SUFFIX)
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) and _is_private(status)):
            return None
        try:
            payload = _unpack(key, file.read())
        except OSError:
            return None
    if payload is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
    return payload


def write_entry(key: str, payload: bytes) -> None:
    """Keep `payload` under `key` if the disk allows it, and bound the size of the cache."""
    directory = cache_directory()
    if directory is None:
        return
    header = _HEADER.pack(
        _MAGIC, bytes.fromhex(key), hashlib.sha256(payload).digest(), len(payload)
    )
    try:
        # `parents=True` alone would leave the first of the two to the umask.
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        if not _is_trusted_directory(directory):
            return
        # Readers see the old entry or the whole new one, whatever the number of writers.
        descriptor, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=directory)
        try:
            with open(descriptor, "wb") as file:
                file.write(header + payload)
            os.replace(temporary, directory / (key + _SUFFIX))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError:
        return
    prune(SIZE_LIMIT)


def prune(limit: int) -> int:
    """Remove the least recently used entries until at most `limit` bytes remain.

    Returns:
        The number of entries removed.
    """
    entries = sorted(_entries(), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    if total <= limit:
        return 0
    removed = 0
    for path, _, size in entries:
        if total <= limit * _PRUNE_TO:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
        total -= size
    return removed


def cache_size() -> tuple[int, int]:
    """Return the number of entries and their total size in bytes."""
    sizes = [size for _, _, size in _entries()]
    return len(sizes), sum(sizes)


def clear_cache() -> int:
    """Remove every entry, and return how many there were."""
    return prune(-1)


def _unpack(key: str, data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, name, digest, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    is_intact = (
        magic == _MAGIC
        and name.hex() == key
        and len(payload) == length
        and hashlib.sha256(payload).digest() == digest
    )
    return payload if is_intact else None


def _is_abandoned(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > _ABANDONED_SECONDS


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):  # Windows: the profile directory has its own access list
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_trusted_directory(directory: Path) -> bool:
    for path in (directory.parent, directory):
        try:
            status = path.stat()
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        if not _is_private(status):
            _warn_untrusted(path)
            return False
    return True


def _warn_untrusted(path: Path) -> None:
    if str(path) in _warned:
        return
    _warned.add(str(path))
    warn_user(
        f"compiled kernels are not cached: `{path}` belongs to another user or is writable by "
        "others; run `chmod 700` on it, or set `PULLBACK_CACHE_DIR` to a private directory",
        UserWarning,
    )


def _entries() -> Iterator[tuple[Path, float, int]]:
    """Yield (path, time of last use, size) of each entry, removing abandoned temporaries."""
    directory = cache_directory()
    if directory is None or not _is_trusted_directory(directory):
        return
    try:
        listing = list(os.scandir(directory))
    except OSError:
        return
    for item in listing:
        try:
            status = item.stat(follow_symlinks=False)
            if item.name.endswith(_SUFFIX):
                yield Path(item.path), status.st_mtime, status.st_size
            elif item.name.endswith(_TEMPORARY) and _is_abandoned(status):
                os.unlink(item.path)
        except OSError:
            continue
