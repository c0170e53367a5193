"""Gradients of compiled code: C, C++, Fortran, Rust and LLVM IR as functions of JAX.

From the bottom up: `sizes`, `arg`, `signature` (what a function takes); `modes` (the five functions
made of it), `slots` (where these find their arrays), `shim` (the C++ text around the user's code);
`code` (languages), `compiler` and `worker` (Enzyme, in a process of its own), `ir_fixes` and
`kernel_ir` (its LLVM IR as a kernel of `pullback.native`), `kept` (on disk) and `program`;
`calls`, `primitives` and `derivatives` (JAX's rules), `numpy_call`, `function` (what is public).
"""

from pullback.foreign.arg import Arg
from pullback.foreign.errors import ForeignError, ForeignMissing
from pullback.foreign.function import ForeignFunction, function

__all__ = ["Arg", "ForeignError", "ForeignFunction", "ForeignMissing", "function"]
