"""The CPU builder: one SIMD lane per trajectory, LLVM IR as text."""
