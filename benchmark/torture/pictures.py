"""Pictures, good and mutated; odd_pictures.py has those that are made byte by byte."""

import io
import random
from collections.abc import Iterator

from PIL import Image

from benchmark.torture.odd_pictures import CATALOGUE

MEGABYTE = 1_000_000
LARGEST_SEED = 100_000
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP")


def good(kind: str = "JPEG") -> bytes:
    """Of noise, and small."""
    file = io.BytesIO()
    Image.effect_noise((64, 48), 60).convert("RGB").save(file, kind)
    return file.getvalue()


def of_a_megabyte() -> bytes:
    """Cheap to decode: most of its bytes follow the picture's end."""
    return good().ljust(MEGABYTE, b"\0")


def hostile(mutants: int, seed: int) -> Iterator[bytes]:
    """The whole catalogue, and mutants of its small files and of good ones: the same for the same
    seed."""
    odd = [each.data() for each in CATALOGUE]
    yield from odd
    seeds = [good(kind) for kind in FORMATS] + [each for each in odd if len(each) < LARGEST_SEED]
    chance = random.Random(seed)
    for _ in range(mutants):
        yield _mutant(chance.choice(seeds), chance)


def _mutant(picture: bytes, chance: random.Random) -> bytes:
    mutant = bytearray(picture or b"\0")
    for _ in range(chance.randint(1, 12)):
        mutant[chance.randrange(len(mutant))] = chance.randrange(256)
    if chance.random() < 0.3:
        del mutant[chance.randrange(len(mutant)) :]
    return bytes(mutant)
