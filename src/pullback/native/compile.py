"""LLVM IR text to an object, and an object to addresses in this process.

Every kernel goes the same way, `compile_object` then `load_object`, whether or not the object
came from the cache, so that a cached kernel runs the same bits as a fresh one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import llvmlite.binding as llvm

from pullback.native import host


@dataclass(frozen=True)
class CompileOptions:
    """How a kernel's IR is optimised and turned into machine code.

    The loop and SLP vectorisers and the unroller are off unless asked for: kernels come
    vectorised, and each of these passes costs compile time for nothing.

    Attributes:
        codegen_level: The code generator's effort, 0 to 3.
        speed_level: The optimisation pipeline, 0 to 3; 0 runs no pass at all.
        loop_unrolling: Let LLVM unroll loops.
        loop_vectorization: Let LLVM vectorise loops.
        slp_vectorization: Let LLVM join scalar operations into vectors.
        features: Processor features added to the host's own, such as `-avx512f`.
    """

    codegen_level: int = 2
    speed_level: int = 1
    loop_unrolling: bool = False
    loop_vectorization: bool = False
    slp_vectorization: bool = False
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse levels that LLVM does not have."""
        for name in ("codegen_level", "speed_level"):
            level = getattr(self, name)
            if level not in range(4):
                raise ValueError(f"`{name}` must be 0, 1, 2 or 3, got {level!r}")


class CompileError(RuntimeError):
    """LLVM refused a kernel's IR: always a defect of what generated it."""


def make_target_machine(options: CompileOptions) -> llvm.TargetMachine:
    """Make LLVM's description of this host, with the options' effort and features."""
    host.initialize_llvm()
    # Position-independent code with the small code model addresses constants relative to the
    # instruction; the default for MCJIT loads each 64-bit address into a register first.
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=host.cpu_name(),
        features=",".join((host.feature_string(), *options.features)),
        opt=options.codegen_level,
        reloc="pic",
        codemodel="small",
    )


def compile_object(ir: str, options: CompileOptions, exports: Iterable[str]) -> bytes:
    """Parse, verify and optimise LLVM IR text, and return the object file.

    Args:
        ir: Text of one module. Its triple and data layout are set here.
        options: Effort and passes.
        exports: Symbols that the text must define.

    Raises:
        CompileError: The text does not parse or verify, lacks an export, or calls a function
            that this process does not have.
    """
    machine = make_target_machine(options)
    try:
        module = llvm.parse_assembly(ir)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused a kernel's IR: {error}") from error
    _check_symbols(module, exports)
    if options.speed_level:
        _optimize(module, machine, options)
    return machine.emit_object(module)


def _check_symbols(module: llvm.ModuleRef, exports: Iterable[str]) -> None:
    """Find missing symbols while that is an exception; LLVM would end the process later."""
    values = [*module.functions, *module.global_variables]
    defined = {value.name for value in values if not value.is_declaration}
    missing = [name for name in exports if name not in defined]
    if missing:
        raise CompileError(f"a kernel's IR does not define {', '.join(missing)}")
    _open_process_symbols()
    wanted = (value.name for value in values if value.is_declaration)
    unknown = [
        name
        for name in wanted
        if not name.startswith("llvm.") and llvm.address_of_symbol(name) is None
    ]
    if unknown:
        raise CompileError(f"a kernel's IR uses unknown functions: {', '.join(unknown)}")


@functools.cache
def _open_process_symbols() -> None:
    """Let `llvm.address_of_symbol` see this process's symbols: a side effect of any MCJIT."""
    machine = make_target_machine(CompileOptions())
    llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, options: CompileOptions) -> None:
    tuning = llvm.create_pipeline_tuning_options(speed_level=options.speed_level)
    tuning.loop_unrolling = options.loop_unrolling
    tuning.loop_vectorization = options.loop_vectorization
    tuning.loop_interleaving = options.loop_vectorization
    tuning.slp_vectorization = options.slp_vectorization
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)


def load_object(data: bytes, symbols: Iterable[str]) -> dict[str, int]:
    """Load an object made by `compile_object`, and return the addresses of its symbols.

    The code is never unloaded: XLA's threads may still run it while Python shuts down.
    """
    machine = make_target_machine(CompileOptions())
    # llvmlite's own memory manager keeps an object's sections together, as the small code
    # model needs.
    execution = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
    execution.add_object_file(llvm.ObjectFileRef.from_data(data))
    execution.finalize_object()
    addresses = {name: execution.get_global_value_address(name) for name in symbols}
    execution.detach()
    missing = [name for name, address in addresses.items() if not address]
    if missing:
        raise CompileError(f"a compiled object does not hold {', '.join(missing)}")
    return addresses
