"""Lane programs: simulations written for one trajectory, run many at a time.

Contents: `program` (the contract), `loop` (loops and stores in a program), `primitive` (the JAX
primitive that carries a program through jit, vmap, grad and the executors), `linalg` (linear
systems in a program), `walk` (how a program becomes instructions; other layers add primitives with
`register_rule`).
"""

from pullback.lanes.loop import lane_while, store_row
from pullback.lanes.primitive import lane_call
from pullback.lanes.program import JvpProgram, LaneCall, LaneProgram
from pullback.lanes.walk import register_rule

__all__ = [
    "JvpProgram",
    "LaneCall",
    "LaneProgram",
    "lane_call",
    "lane_while",
    "register_rule",
    "store_row",
]
