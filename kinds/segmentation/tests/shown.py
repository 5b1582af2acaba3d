"""What its command shows: tests/shown/every.py."""

import numpy as np

from bundle_client.answers import Area, Segmented
from bundle_client.show import as_table
from scripts.base import console
from tests.shown.running import PHOTO


def segment() -> None:
    areas = Area(7, "road and pavement", 0.61234), Area(0, "the background of all else", 0.38766)
    found = Segmented(PHOTO, np.zeros((1, 1), np.uint8), areas, 12345.6)
    print(as_table(found, console.out))


SHOWN = {"segment": segment}
