"""Native kernels for the steps of ONE trajectory: every array is one vector.

The lanes' rules evaluate a step with another builder and other arrays: `elements` (arrays that
have not been moved yet), `builder` (a width that changes), `arrays`, `walk`. `program` makes a step
and its reverse into blocks of equations, `leaves` moves arrays in and out, `tape` keeps what the
reverse needs, and `kernels` puts the loops around them, in a `shell`.
"""

from pullback.lanes.wide.kernels import advance_kernel, pull_kernel, while_kernel
from pullback.lanes.wide.program import StepProgram, step_program
from pullback.lanes.wide.shell import ENTRY, StepKernel
from pullback.lanes.wide.walk import UnsupportedStep

__all__ = [
    "ENTRY",
    "StepKernel",
    "StepProgram",
    "UnsupportedStep",
    "advance_kernel",
    "pull_kernel",
    "step_program",
    "while_kernel",
]
