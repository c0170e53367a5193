#!/bin/sh
# Make .venv and install this package with one extra into it, once: `tools/make_env.sh EXTRA`.
# A stamp named by the hash of pyproject.toml and of the Python version says that it is done.
set -eu
extra=$1
python=${PYTHON:-python3}
venv=.venv
cd "$(dirname "$0")/.."

fail() { echo "error: $*" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 ||
    fail "'$python' was not found: install Python 3.11 or newer, or name one with 'make PYTHON=/path/to/python3'."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "pullback needs Python 3.11 or newer, but '$python' is $("$python" -V 2>&1): name a newer one with 'make PYTHON=/path/to/python3'."

# The version that goes into the stamp is the one of the environment itself where it works.
alive() { [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; }
if ! alive; then
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
        fail "'$python' has no venv module: install it (on Debian and Ubuntu: apt-get install python3-venv)."
    echo "making $venv with $("$python" -V 2>&1)"
    "$python" -m venv --clear "$venv"
fi

key=$("$venv/bin/python" -c '
import hashlib, pathlib, sys
print(hashlib.sha256(pathlib.Path("pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()[:16])')
stamp="$venv/.pullback-$extra-$key"
# The development environment holds everything that the smaller extras ask for, docs excepted.
case "$extra" in docs) ;; *) [ ! -e "$venv/.pullback-dev-$key" ] || exit 0 ;; esac
[ ! -e "$stamp" ] || exit 0

echo "installing pullback[$extra] into $venv (once, a minute or two)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -e ".[$extra]"
rm -f "$venv/.pullback-$extra-"*
: >"$stamp"
