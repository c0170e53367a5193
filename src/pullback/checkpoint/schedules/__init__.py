"""Checkpointing schedules: where to put snapshots. Integers only; nothing here knows JAX.

Contents: `actions` (what a schedule yields), `scheme` (what every scheme promises), `simulator`
(proves a schedule legal and counts its cost), `binomial` and `reverse_sweep` (the optimum for a
known length), and one file per scheme.
"""

from pullback.checkpoint.schedules.actions import (
    Action,
    Advance,
    Free,
    Restore,
    Store,
    Tier,
    UTurn,
)
from pullback.checkpoint.schedules.chunked import AbstractChunked, Nested, Periodic, StoreAll
from pullback.checkpoint.schedules.hrevolve import HRevolve
from pullback.checkpoint.schedules.multistage import Multistage
from pullback.checkpoint.schedules.online import Online
from pullback.checkpoint.schedules.revolve import Revolve
from pullback.checkpoint.schedules.scheme import AbstractScheme
from pullback.checkpoint.schedules.simulator import ScheduleCost, simulate
from pullback.checkpoint.schedules.two_level import TwoLevel

__all__ = [
    "AbstractChunked",
    "AbstractScheme",
    "Action",
    "Advance",
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
    "Tier",
    "TwoLevel",
    "UTurn",
    "simulate",
]
