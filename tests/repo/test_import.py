"""`import pullback` on its own: without extras, without side effects."""

import subprocess
import sys

from repo_files import PACKAGE

BLOCKED = """
import sys

class Blocker:
    names = {"diffrax", "equinox", "h5py", "matplotlib", "mpi4py", "optax", "scipy", "torch",
             "tensorflow", "xarray", "enzyme_ad", "pytest", "hypothesis"}

    # jax itself needs scipy: what is asked for from outside this package may pass.
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        importer = frame.f_globals.get("__name__", "") if frame else ""
        if name.split(".")[0] in self.names and importer.startswith("pullback"):
            raise ImportError(f"{importer} imports {name}, which is optional")

sys.meta_path.insert(0, Blocker())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(PACKAGE.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_works_without_any_extra():
    done = run(BLOCKED + "import pullback, pullback.testing, pullback.data; print('fine')")
    assert done.stdout == "fine\n", done.stderr


def test_changes_no_setting_and_starts_no_backend():
    # jax refuses to change the number of devices once a backend has started.
    done = run(
        "import jax\n"
        "before = dict(jax.config.values)\n"
        "import pullback\n"
        "changed = {k for k, v in jax.config.values.items() if before.get(k) != v}\n"
        "assert not changed, changed\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"
        "print(len(jax.devices('cpu')))\n"
    )
    assert done.stdout == "2\n", done.stderr


def test_version_is_the_one_of_the_distribution():
    done = run(
        "from importlib.metadata import version\n"
        "import pullback\n"
        "print(pullback.__version__ == version('pullback'))\n"
    )
    assert done.stdout == "True\n", done.stderr
