#!/bin/sh
# Installs the bundle from this pack, without any network:
#
#     sh install.sh FOLDER
#
# Checks every file of the pack first. Then, in FOLDER: make up
set -eu
pack=$(cd "$(dirname "$0")" && pwd)
fail() { echo "error: $1; $2" >&2; exit 1; }

[ $# = 1 ] || fail "no folder given" "sh install.sh FOLDER"
[ ! -e "$1" ] || [ -z "$(ls -A "$1")" ] || fail "$1 is not empty" "name a new folder"
for program in make python3 sha256sum; do
    command -v "$program" > /dev/null || fail "$program is missing" "install it"
done
python=python$(cat "$pack/python")
command -v "$python" > /dev/null || fail "$python is missing, which the packages are for" "install it"

echo "- checking the pack …"
if ! wrong=$(cd "$pack" && sha256sum --check --quiet SHA256SUMS 2>&1); then
    fail "the pack is not whole: $(echo "$wrong" | head -n 1)" "copy it again"
fi

mkdir -p "$1"
cp -R "$pack/bundle/." "$1"
cd "$1"
# A place of packages ends at a space for pip: as an address it has none.
wheels=$(python3 -c "import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())" "$pack/wheels")
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels" PYTHON="$python"
layers=tools
# tritonserver is among the packages if the pack is for the local flavour.
for wheel in "$pack"/wheels/nvidia_pytriton-*.whl; do
    [ ! -e "$wheel" ] || layers="tools serve"
done
# shellcheck disable=SC2086  # words
python3 -m scripts.bootstrap $layers
.venv/bin/python -c "
import sys
from pathlib import Path
from scripts.base.errors import run_guarded
from extensions.upkeep import pack
sys.exit(run_guarded(lambda: pack.unpack(Path(sys.argv[1])) or 0))" "$pack"
