"""Checkpointed loops: gradients of long loops in bounded memory.

Contents: `schedules` (where snapshots are placed; integers only), `storage` and `storage_ram`
(where they are kept), `scan` and `while_loop` (the public functions), and how they are followed:
`compiled_scan` (a schedule inside compiled code), `chunked_scan` (loops within loops),
`compiled_while` (placement while the loop runs), `host_scan` and `host_while` (Python, one
compiled call per action). `body` traces the user's functions, `table` turns a schedule into arrays.
"""

from pullback.checkpoint.mode import CheckpointModeError
from pullback.checkpoint.scan import checkpointed_scan
from pullback.checkpoint.schedules import (
    AbstractChunked,
    AbstractScheme,
    Action,
    Advance,
    Free,
    HRevolve,
    Multistage,
    Nested,
    Online,
    Periodic,
    Restore,
    Revolve,
    ScheduleCost,
    Store,
    StoreAll,
    TwoLevel,
    UTurn,
    simulate,
)
from pullback.checkpoint.storage import AbstractStorage
from pullback.checkpoint.storage_ram import RAM
from pullback.checkpoint.while_loop import checkpointed_while

__all__ = [
    "RAM",
    "AbstractChunked",
    "AbstractScheme",
    "AbstractStorage",
    "Action",
    "Advance",
    "CheckpointModeError",
    "Free",
    "HRevolve",
    "Multistage",
    "Nested",
    "Online",
    "Periodic",
    "Restore",
    "Revolve",
    "ScheduleCost",
    "Store",
    "StoreAll",
    "TwoLevel",
    "UTurn",
    "checkpointed_scan",
    "checkpointed_while",
    "simulate",
]
