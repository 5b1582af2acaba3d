"""What its command shows: tests/shown/every.py."""

from bundle_client.answers import Box, Detected
from bundle_client.show import as_table
from scripts.base import console
from tests.shown.running import PHOTO


def detect() -> None:
    box = Box("the second car of a neighbour", 0.987, 12.5, 1234.5, 3456.7, 4567.8)
    print(as_table(Detected(PHOTO, (box,), 12345.6), console.out))


SHOWN = {"detect": detect}
