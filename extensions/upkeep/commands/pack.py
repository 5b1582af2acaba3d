"""Writes a folder from which the bundle is installed on a machine without any network: the bundle,
its Python packages, the server's image, and the versions that are here.

    make pack TO=folder               for both CPU flavours, if containers can be run here
    make pack TO=folder FLAVOUR=local

There: sh folder/install.sh triton-bundle && cd triton-bundle && make up
"""

from pathlib import Path

from extensions.upkeep import pack
from scripts.base import console, disk, files, lock
from scripts.base.errors import UserError
from scripts.server import served
from scripts.settings import arguments
from scripts.settings.settings import Settings


def main() -> None:
    asked = arguments.load()
    if not asked.to:
        raise UserError("no folder given", "make pack TO=folder")
    target = Path(asked.to)
    files.require_new(target)
    with lock.one_at_a_time():
        served.find_served_version()
        made_for = pack.write(target, Settings.load())
    size = disk.readable(disk.measure_occupied([target]))
    console.note(f"packed for flavour {' and '.join(made_for)}, {size}: {target}")
    console.note(f"to install it: sh {target.name}/{pack.INSTALL} triton-bundle")
