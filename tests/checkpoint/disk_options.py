"""The kinds of storage that the tests of this folder share; optional packages may be missing."""

import importlib.util

import pytest

from pullback.checkpoint import RAM, Disk, Host, Tiered


def needing(module, *values):
    missing = importlib.util.find_spec(module) is None
    return pytest.param(
        *values, marks=pytest.mark.skipif(missing, reason=f"{module} is not installed")
    )


DISKS = {
    "npy": {},
    "power": {"durability": "power"},
    "zstd": {"compression": "zstd"},
    "blosc": {"compression": "blosc"},
    "hdf5": {"format": "hdf5"},
    "hdf5, zstd": {"format": "hdf5", "compression": "zstd"},
}
_NEEDED = {"zstd": "zstandard", "blosc": "blosc2", "hdf5": "h5py", "hdf5, zstd": "h5py"}
DISK_NAMES = [needing(_NEEDED[name], name) if name in _NEEDED else name for name in DISKS]


def disk(name, path):
    return Disk(path, **DISKS[name])


def make_storage(name, path):
    others = {"RAM": RAM, "Host": Host, "Tiered": lambda: Tiered(RAM(), Disk(path))}
    return others[name]() if name in others else disk(name, path)


STORAGE_NAMES = ["RAM", "Host", "Tiered", *DISK_NAMES]
