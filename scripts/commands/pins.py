"""Renews the versions and hashes of all Python packages, and shows what changed.

    make pins                     every package, to the newest that fits the others
    make pins ONLY=pillow,numpy   these only, for a security fix say
    make pins ONLY=none           no version, but the lists in locked/ again, for a new requirement

Run the tests afterwards: make test.
"""

from scripts import pins
from scripts.base import console
from scripts.settings import arguments


def main() -> None:
    only = arguments.load().only
    names = None if not only else [] if only == "none" else only.replace(",", " ").split()
    with console.waiting("resolving"):
        changes = list(pins.renew(names))
    for change in changes:
        console.note(change)
    console.note("next: make test" if changes else "no version changed")
