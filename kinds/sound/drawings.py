"""The eight sounds, varied in pitch, length, loudness and background.

python -m kinds.sound.drawings --to FOLDER      one of each, as WAV files
"""

from __future__ import annotations

import io
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinds.sound.serving.sounds import Hearing, log_mel
from kinds.sound.serving.wav import Samples
from kinds.sound.things import NAMES, THINGS, Pen, Random, Wave
from scripts.artefacts.exporting import start
from scripts.base import files

RATE = 16_000
SHORTEST, USUALLY = 0.7, 2.0  # seconds
# How much louder a sound is than what is behind it, in decibels.
FAINT, CLEAR = 6, 40
LOUDNESS = 0.03, 0.95


def many(how: Hearing, count: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """What a network hears of them [count, mels, frames], and their labels, evenly distributed."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(THINGS)
    windows = [place_in_window(label, random, how.seconds, how.rate) for label in labels.tolist()]
    return np.concatenate([log_mel(each[None], how) for each in windows]), labels


def drawing(label: int, random: Random, seconds: float, rate: int = RATE) -> Samples:
    pen = Pen(random, seconds, rate)
    return _record(THINGS[label](pen), pen)


def place_in_window(label: int, random: Random, window: float, rate: int) -> Samples:
    """As long as the window, or shorter and somewhere in it."""
    whole, shorter = Pen(random, window, rate), random.uniform(min(SHORTEST, window), window)
    thing = THINGS[label](Pen(random, shorter, rate) if whole.chance(0.5) else whole)
    left = len(whole.t) - len(thing)
    before = int(random.integers(0, left + 1))
    return _record(np.pad(thing, (before, left - before)), whole)


def _record(thing: Wave, pen: Pen) -> Samples:
    """With noise behind it, and as loud as chance has it."""
    behind = pen.noise(pen.pick(40, 400), pen.pick(200, 7000))
    behind *= np.sqrt((thing**2).mean()) * 10 ** (-pen.pick(FAINT, CLEAR) / 20)
    found = thing + behind
    found *= pen.pitch(*LOUDNESS) / np.abs(found).max()
    return found.astype(np.float32)


def file(samples: Samples, rate: int = RATE) -> bytes:
    """A WAV file of 16 bits."""
    content = io.BytesIO()
    with wave.open(content, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(rate)
        made.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return content.getvalue()


def one_of_each(seconds: float = USUALLY, seed: int = 0) -> dict[str, bytes]:
    """WAV files by their names."""
    random = np.random.default_rng(seed)
    return {name: file(drawing(label, random, seconds)) for label, name in enumerate(NAMES)}


def main(to: Path) -> int:
    for name, content in one_of_each().items():
        files.write_bytes(to / f"{name}.wav", content)
    return 0


if __name__ == "__main__":
    sys.exit(start(main))
