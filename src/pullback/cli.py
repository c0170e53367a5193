"""The command `pullback`: `demo` fits real data, `info` describes this installation."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pullback as pb
from pullback import demo, native
from pullback.lanes.cpu.target import vector_bytes

_OPTIONAL = ("optax", "equinox", "matplotlib")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: the arguments, by default those of the process.
    """
    arguments = _parser().parse_args(argv)
    try:
        print(arguments.run(arguments))
    except ImportError as error:  # an extra is missing; the message says which
        print(f"pullback {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return 0


def info() -> str:
    """Describe versions, processor, executors and settings for reading, or for a bug report."""
    rows = [*_versions(), *_machine()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pullback", description="Gradients through simulations, for JAX."
    )
    parser.add_argument("--version", action="version", version=f"pullback {pb.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser(
        "demo",
        help="fit a predator-prey model to real data from thousands of starts at once",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    fit.add_argument("--starts", type=_positive, default=4096, help="random starts")
    fit.add_argument("--iterations", type=_positive, default=500, help="updates of each start")
    fit.add_argument("--seed", type=int, default=0, help="of the starts and the resampled data")
    fit.add_argument(
        "--output", type=_file, default="lynx_hare.png", help="the picture; '' draws none"
    )
    fit.set_defaults(run=_run_demo)
    about = commands.add_parser("info", help="versions, executors, SIMD width, threads, cache")
    about.set_defaults(run=lambda _: info())
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive whole number is expected, not {text!r}")
    return int(text)


def _file(text: str) -> str:
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {str(Path(text).parent)!r} does not exist")
    return text


def _run_demo(arguments: argparse.Namespace) -> str:
    print(
        f"Fitting the Lotka-Volterra equations to 21 years of hare and lynx pelts, from "
        f"{arguments.starts} random starts at once.",
        flush=True,
    )
    result = demo.run(
        n_starts=arguments.starts,
        n_iterations=arguments.iterations,
        seed=arguments.seed,
        picture=arguments.output or None,
    )
    return "\n" + result.report()


def _versions() -> list[tuple[str, str]]:
    report = native.info()
    rows = [
        ("pullback", pb.__version__),
        ("Python", platform.python_version()),
        ("jax", metadata.version("jax")),
        ("jaxlib", report["jaxlib_version"]),
        ("numpy", metadata.version("numpy")),
        ("llvmlite", report["llvmlite_version"]),
        ("LLVM", report["llvm_version"]),
    ]
    return [*rows, *((name, _version(name)) for name in _OPTIONAL)]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> list[tuple[str, str]]:
    report = native.info()
    bits, directory = 8 * vector_bytes(), report["cache_directory"]
    cached = f"{report['cache_entries']} kernels, {report['cache_bytes'] / 1e6:.1f} MB"
    return [
        ("processor", f"{report['cpu']} ({report['machine']})"),
        ("instructions", " ".join(report["simd"]) or "no vector extensions"),
        ("vector registers", f"{bits} bits: {bits // 64} float64 or {bits // 32} float32"),
        ("vector math", "own polynomials, the same at every width"),
        ("executors", _executors()),
        ("threads", str(report["threads"])),
        ("kernel cache", "off" if directory is None else f"{directory} ({cached})"),
    ]


def _executors() -> str:
    if native.is_supported():
        return "EnsembleKernel (cpu), EnsembleArray"
    return f"EnsembleArray; no EnsembleKernel: {native.unsupported_reason()}"
