"""How many threads a call may use."""

from __future__ import annotations

from pullback.native import host, process


def num_threads() -> int:
    """Return the most threads that one call uses; XLA's pool may have fewer.

    At first this is `$PULLBACK_NUM_THREADS`, else the number of processors of this process.
    """
    loaded = process.loaded_runtime()
    return host.default_num_threads() if loaded is None else loaded.words["max_threads"]


def set_num_threads(n: int) -> None:
    """Set the most threads that one call uses, from the next call on.

    1 keeps all work on the thread that calls. Results do not depend on the number.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"`n` must be a positive whole number of threads, got {n!r}")
    process.runtime().words["max_threads"] = n
