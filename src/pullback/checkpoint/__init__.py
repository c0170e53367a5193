"""Checkpointed loops: gradients of long loops in bounded memory.

Contents: `schedules` (where snapshots are placed; integers only), `storage` (where they are kept:
a file per kind, and `disk` for what is behind one of them), `scan` and `while_loop` (the public
functions), `driver` (a loop that may outlive the process), and how schedules are followed:
`compiled_scan` (a schedule inside compiled code), `chunked_scan` (loops within loops),
`compiled_while` (placement while the loop runs), `host_scan` and `host_while` (Python, one
compiled call per action). `body` traces the user's functions, `table` turns a schedule into arrays,
`step_kernels` is the hook for other compilers than XLA.
"""

from pullback.checkpoint.driver.adjoint_fields import AdjointField, save_adjoint_fields
from pullback.checkpoint.driver.manifest import ResumeError
from pullback.checkpoint.driver.restartable import value_and_grad_loop
from pullback.checkpoint.mode import CheckpointModeError
from pullback.checkpoint.scan import checkpointed_scan, traced_step
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
from pullback.checkpoint.step_kernels import (
    AbstractStepKernels,
    StepNotCompiled,
    register_step_compiler,
)
from pullback.checkpoint.storage import AbstractStorage, StorageError
from pullback.checkpoint.storage_disk import Disk
from pullback.checkpoint.storage_host import Host
from pullback.checkpoint.storage_ram import RAM
from pullback.checkpoint.storage_tiered import Tiered
from pullback.checkpoint.while_loop import checkpointed_while

__all__ = [
    "RAM",
    "AbstractChunked",
    "AbstractScheme",
    "AbstractStepKernels",
    "AbstractStorage",
    "Action",
    "AdjointField",
    "Advance",
    "CheckpointModeError",
    "Disk",
    "Free",
    "HRevolve",
    "Host",
    "Multistage",
    "Nested",
    "Online",
    "Periodic",
    "Restore",
    "ResumeError",
    "Revolve",
    "ScheduleCost",
    "StepNotCompiled",
    "StorageError",
    "Store",
    "StoreAll",
    "Tiered",
    "TwoLevel",
    "UTurn",
    "checkpointed_scan",
    "checkpointed_while",
    "register_step_compiler",
    "save_adjoint_fields",
    "simulate",
    "traced_step",
    "value_and_grad_loop",
]
