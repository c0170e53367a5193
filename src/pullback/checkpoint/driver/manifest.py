"""Whether a folder holds this loop: a record of everything that the result depends on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import jax
import numpy as np

from pullback.checkpoint.disk.leaves_on_disk import to_numpy
from pullback.checkpoint.driver.loop_functions import Loop, turn, value_and_adjoint
from pullback.checkpoint.schedules import AbstractScheme
from pullback.checkpoint.storage import StorageError
from pullback.core.fingerprint import ContentKey, open_jaxpr_key
from pullback.core.typing import PyTree
from pullback.native import cpu_name

__all__ = ["Manifest", "ResumeError", "manifest_of", "remove"]

_NAME = "manifest.json"
_VERSION = 1
# Settings of JAX that change bits; two kinds, which are read in different ways.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision")
_OPTIMIZATIONS = "jax_disable_most_optimizations"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class ResumeError(ValueError):
    """A folder was begun by another loop than the one that is to be resumed."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a run is.

    Attributes:
        run: A number of its own; part of everything that it writes.
        loop: What has to be the same for the result to be the same.
        machine: What may change the last bits.
    """

    run: int
    loop: dict[str, Any]
    machine: dict[str, Any]

    def write(self, folder: str) -> None:
        """Write the file; it is there as a whole or not at all."""
        path = os.path.join(folder, _NAME)
        text = json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, indent=1)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)

    def resumed(self, folder: str) -> Manifest | None:
        """Return this with the number of the run that the folder holds; None if it holds none.

        Raises:
            ResumeError: The folder holds another loop.
        """
        found = _read(folder)
        if found is None:
            return None
        differences = list(_differences(found.get("loop", {}), self.loop))
        on_machine = list(_differences(found.get("machine", {}), self.machine))
        if found.get("version") != _VERSION:
            differences.insert(0, f"version of the format: {found.get('version')} there, 1 here")
        if differences:
            raise ResumeError(
                f"`directory`: expected {folder!r} to hold this loop or none, but it was begun with"
                f" another: {'; '.join(differences + on_machine)}. Pass another directory, or"
                " resume=False to begin anew."
            )
        if on_machine:
            warnings.warn(
                f"`directory`: {folder!r} was begun under other circumstances:"
                f" {'; '.join(on_machine)}. The result may differ in its last bits from that of"
                " an uninterrupted run.",
                stacklevel=4,
            )
        return dataclasses.replace(self, run=int(found["run"]))


def remove(folder: str) -> None:
    """Forget the run that a folder holds, if any."""
    path = os.path.join(folder, _NAME)
    if os.path.exists(path):
        os.remove(path)


def manifest_of(
    loop: Loop, init: PyTree, params: PyTree, xs: PyTree,
    length: int, block: int, scheme: AbstractScheme,
) -> Manifest:  # fmt: skip
    """Return the manifest of a new run."""
    same: dict[str, Any] = {
        "length": length,
        "block": block,
        "scheme": repr(scheme),
        "step": _code_hash(loop.body.key, _gradient_key(loop)),
        "steps run by": "XLA" if loop.body.kernels is None else type(loop.body.kernels).__name__,
        "loss": _code_hash(loop.loss.key),
        "what step closes over": _values_hash(loop.operands.consts),
        "what loss closes over": _values_hash(loop.loss_consts),
    }
    trees = {"init": (init, loop.init), "params": (params, loop.operands.params),
             "xs": (xs, loop.operands.xs)}  # fmt: skip
    for name, (tree, leaves) in trees.items():
        same[f"structure of {name}"] = str(jax.tree.structure(tree))
        same[f"types of {name}"] = [f"{x.dtype}{list(x.shape)}" for x in leaves]
        same[f"values of {name}"] = _values_hash(leaves)
    devices = jax.devices()
    machine = {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "devices": f"{len(devices)} {devices[0].device_kind}",
        "processor": cpu_name(),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        **{name: str(getattr(jax.config, name)) for name in _SETTINGS},
        _OPTIMIZATIONS: str(jax.config.read(_OPTIMIZATIONS)),
    }
    return Manifest(secrets.randbits(62), same, machine)


def _read(folder: str) -> dict[str, Any] | None:
    path = os.path.join(folder, _NAME)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(
            f"`directory`: expected {path} to be the manifest of a run, but it cannot be read:"
            f" {error}. Pass another directory, or resume=False to begin anew."
        ) from error


def _differences(there: dict[str, Any], here: dict[str, Any]) -> Iterable[str]:
    for name in here:
        old, new = there.get(name), here[name]
        if old != new:
            is_hash = isinstance(new, str) and re.fullmatch(r"#[0-9a-f]+", new)
            yield f"{name} differs" if is_hash else f"{name}: {old} there, {new} here"


def _values_hash(leaves: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for leaf in leaves:
        array = to_numpy(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return f"#{digest.hexdigest()[:16]}"


def _gradient_key(loop: Loop) -> ContentKey:
    adjoint = jax.eval_shape(
        functools.partial(value_and_adjoint, loop.loss),
        loop.loss_consts, loop.operands.params, loop.init,
    )  # fmt: skip
    # Kernels reverse a step by the same rules.
    body = dataclasses.replace(loop.body, kernels=None)
    traced = jax.make_jaxpr(functools.partial(turn, body, 0))(
        loop.operands, np.int32(0), loop.init, adjoint
    )
    return open_jaxpr_key(traced.jaxpr)


def _code_hash(*keys: ContentKey) -> str:
    digest = hashlib.sha256()
    for key in keys:
        for piece in _pieces(key.parts):
            digest.update(piece.encode() if isinstance(piece, str) else piece)
    return f"#{digest.hexdigest()[:16]}"


def _pieces(part: Any) -> Iterable[str | bytes]:
    """Yield a description of a nested key that is the same in every process."""
    if isinstance(part, tuple):
        yield "("
        for item in part:
            yield from _pieces(item)
        yield ")"
    elif isinstance(part, bytes):
        yield part
    elif isinstance(part, (str, int, float, np.dtype, type(None))):
        yield f"{part!r},"
    elif isinstance(part, (set, frozenset)):
        yield repr(sorted(map(repr, part)))
    else:
        # Functions by name: what rules of differentiation do is in the key of the gradient.
        target = getattr(part, "value", part)
        name = getattr(target, "__qualname__", None)
        yield _ADDRESS.sub("", repr(target)) if name is None else f"{name},"
