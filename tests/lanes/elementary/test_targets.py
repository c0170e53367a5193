"""The functions compile to plain vector instructions on other targets: nothing calls a library."""

import re

import llvmlite.binding as llvm
import pytest

from lanes.elementary.builder import NUMPY, emit_module
from pullback.lanes.elementary import FUNCTIONS

# (triple, cpu, width): AVX2, AVX-512, AArch64, and one scalar per thread of a GPU
TARGETS = {
    "haswell": ("x86_64-unknown-linux-gnu", "haswell", 4),
    "skylake-avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", 8),
    "neoverse-n1": ("aarch64-unknown-linux-gnu", "neoverse-n1", 4),
    "sm_80": ("nvptx64-nvidia-cuda", "sm_80", 1),
}
CALL = re.compile(r"^\s*(?:call\S*|bl|blr)\s.*$", re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def _all_targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_calls(name, target):
    triple, cpu, width = TARGETS[target]
    for dtype in NUMPY:
        function, arity = FUNCTIONS[name]
        module, _ = emit_module(function, arity, dtype, width, branching=True)
        module.triple = triple
        parsed = llvm.parse_assembly(str(module))
        machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=1)
        assert CALL.findall(machine.emit_assembly(parsed)) == []


def test_calls_are_found():
    """A processor without fused multiply-add calls `fma`: the functions are not for it."""
    module, _ = emit_module(*FUNCTIONS["exp"], "f64", 4, branching=True)
    machine = llvm.Target.from_triple(TARGETS["haswell"][0]).create_target_machine(cpu="nehalem")
    assert CALL.findall(machine.emit_assembly(llvm.parse_assembly(str(module))))
