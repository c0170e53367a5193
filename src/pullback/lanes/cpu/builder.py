"""The SIMD builder: what the walk and the rules emit through, for W lanes of one CPU thread.

Every operation is emitted once per lane program, whatever the number of lanes. The rules use only
its public methods; another target implements the same ones. What does *not* belong here: rules of
JAX primitives (`lanes.rules`), the loop over trajectories (`cpu.shell`).

Contents, each built on the one before: `emitter` (values, expressions), `arithmetic`, `flow`
(branches and loops), `access` (memory).
"""

from pullback.lanes.cpu.access import Access


class SimdBuilder(Access):
    """Emit lane operations as LLVM IR for `width` lanes."""
