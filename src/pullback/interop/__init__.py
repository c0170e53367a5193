"""Where folders that do not know each other meet, and other libraries.

* `native_steps`: the native kernels of `lanes.wide` for the loops of `checkpoint`.

Importing this registers what `"auto"` means there.
"""

from pullback.checkpoint import register_step_compiler
from pullback.interop.native_steps import native_steps, native_steps_reason

__all__ = ["native_steps", "native_steps_reason"]

register_step_compiler(native_steps)
