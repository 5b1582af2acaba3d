"""Eight sounds, each drawn up in many variations from sines and noise, and varied in pitch, length,
loudness and background.

python -m kinds.sound.drawings --to FOLDER      one of each, as WAV files
"""

import io
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinds.sound.serving.sounds import Hearing, log_mel
from kinds.sound.serving.wav import Samples
from scripts.artefacts.exporting import start
from scripts.base import files

Wave = NDArray[np.float64]
Random = np.random.Generator

# What SOUNDS calls the network that knows these.
DRAWN = "drawn"
RATE = 16_000
SHORTEST, USUALLY = 0.7, 2.0  # seconds
# How much louder a sound is than what is behind it, in decibels.
FAINT, CLEAR = 6, 40
LOUDNESS = 0.03, 0.95

PURE: Mapping[float, float] = {1: 1}
SQUARE: Mapping[float, float] = {1: 1, 3: 1 / 3, 5: 1 / 5}


@dataclass(frozen=True)
class Pen:
    """Draws up waves of one length."""

    random: Random
    seconds: float
    rate: int

    def pick(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def pitch(self, low: float, high: float) -> float:
        """As evenly distributed as ears hear it."""
        return float(np.exp(self.random.uniform(np.log(low), np.log(high))))

    def count(self, least: int, most: int) -> int:
        return int(self.random.integers(least, most + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    @cached_property
    def t(self) -> Wave:
        return np.arange(round(self.seconds * self.rate)) / self.rate

    def tone(self, frequency: float | NDArray[Any], partials: Mapping[float, float] = PURE) -> Wave:
        """Of a frequency that may change, with others beside it: their ratios to it, and how loud
        each is. Nothing above what the rate can hold."""
        moving = np.broadcast_to(frequency, self.t.shape)
        phase, found = 2 * np.pi * np.cumsum(moving) / self.rate, np.zeros_like(self.t)
        for ratio, loud in partials.items():
            if moving.max() * ratio < self.rate / 2:
                found += loud * np.sin(ratio * phase + self.pick(0, 2 * np.pi))
        return found

    def partials(self, ratios: Sequence[float], fading: float) -> dict[float, float]:
        """Each as loud as chance has it, and the higher, the fainter."""
        return {ratio: self.pick(0.2, 1) / ratio**fading for ratio in ratios}

    def noise(self, low: float, high: float) -> Wave:
        """Of the frequencies between, with a soft edge, and of loudness 1."""
        spectrum = np.fft.rfft(self.random.standard_normal(len(self.t)))
        frequency = np.fft.rfftfreq(len(self.t), 1 / self.rate)
        edges = np.minimum(frequency / low, 1) * np.minimum(high / np.maximum(frequency, 1), 1)
        found = np.fft.irfft(spectrum * edges**2, len(self.t))
        noise: Wave = found / max(found.std(), 1e-9)
        return noise

    def struck(self, at: float, decay: float) -> Wave:
        """Sudden, and then fading."""
        since = self.t - at
        return np.where(since >= 0, np.exp(-since.clip(0) / decay), 0)

    def hold(self, begin: float, end: float, edge: float) -> Wave:
        """Loud between two times, with edges of so many seconds."""
        rise, fall = (self.t - begin) / edge, (end - self.t) / edge
        return np.minimum(rise, fall).clip(0, 1)


def bell(pen: Pen) -> Wave:
    lowest, decay = pen.pitch(220, 1100), pen.pick(0.5, 1.6)
    strikes = np.sort(pen.random.uniform(0, 0.6, pen.count(1, 3)) * pen.seconds)
    strikes -= strikes[0] - pen.pick(0, 0.05)
    found = np.zeros_like(pen.t)
    for ratios, long in (((0.5, 1, 1.19), 1.0), ((1.56, 2, 2.51), 0.6), ((2.66, 3.01, 4.1), 0.4)):
        ringing = np.max([pen.struck(at, decay * long) for at in strikes], axis=0)
        found += pen.tone(lowest, pen.partials(ratios, 0.5)) * ringing
    return found


def siren(pen: Pen) -> Wave:
    low = pen.pitch(350, 800)
    high, place = low * pen.pick(1.3, 2.2), (pen.t / pen.pick(0.5, 2.5) + pen.pick(0, 1)) % 1
    smooth, two, straight = (
        0.5 - 0.5 * np.cos(2 * np.pi * place),
        place < 0.5,
        1 - abs(2 * place - 1),
    )
    shape = (smooth, two, straight)[pen.count(0, 2)]
    return pen.tone(low + (high - low) * shape, pen.partials((1, 2, 3, 4, 5), 1))


def knock(pen: Pen) -> Wave:
    at, step, decay = pen.pick(0, 0.1), pen.pick(0.12, 0.35), pen.pick(0.012, 0.04)
    body = pen.tone(pen.pitch(90, 420), pen.partials((1, 1.6, 2.3), 1))
    click, found = 0.4 * pen.noise(500, 3000), np.zeros_like(pen.t)
    for _ in range(pen.count(2, 6)):
        found += pen.pick(0.6, 1) * (body * pen.struck(at, decay) + click * pen.struck(at, 0.004))
        at += step * pen.pick(0.85, 1.15)
    return found


def rain(pen: Pen) -> Wave:
    drops = np.zeros_like(pen.t)
    where = pen.random.integers(0, len(pen.t), round(pen.pitch(20, 400) * pen.seconds))
    drops[where] = pen.random.uniform(0.3, 1, len(where))
    splash = np.exp(-np.arange(200) / pen.pick(8, 40)) * pen.random.standard_normal(200)
    steady = pen.noise(pen.pick(300, 1500), pen.pick(4000, 8000))
    return steady + pen.pick(0.5, 3) * np.convolve(drops, splash)[: len(pen.t)]


def whistle(pen: Pen) -> Wave:
    bend = np.sin(np.pi * (pen.t / pen.seconds) * pen.pick(0.5, 2.5) + pen.pick(0, 6))
    vibrato = pen.pick(0.005, 0.03) * np.sin(2 * np.pi * pen.pick(4, 8) * pen.t)
    pitch = pen.pitch(900, 2600) * np.exp(pen.pick(-0.35, 0.35) * bend + vibrato)
    breath = pen.pick(0.02, 0.12) * pen.noise(1000, 6000)
    return (pen.tone(pitch, {1: 1, 2: 0.05}) + breath) * pen.hold(0, pen.seconds, 0.08)


def engine(pen: Pen) -> Wave:
    drift = pen.pick(0, 0.25) * np.sin(2 * np.pi * pen.pick(0.1, 0.6) * pen.t + pen.pick(0, 6))
    turns = pen.pitch(28, 110) * (1 + drift)
    found = pen.tone(turns, pen.partials(range(1, 13), 0.6))
    found *= 1 + pen.pick(0, 0.6) * pen.tone(turns / 2)
    return found + pen.pick(0.05, 0.5) * pen.noise(60, pen.pick(300, 1200))


def bird(pen: Pen) -> Wave:
    long, pause, pitch = pen.pick(0.04, 0.14), pen.pick(0.02, 0.2), pen.pitch(2500, 5500)
    call, place = np.divmod(pen.t + pen.pick(0, 0.2), long + pause)
    place = (place / long).clip(0, 1)
    own = pen.random.uniform(0.92, 1.08, int(call[-1]) + 1)[call.astype(int)]
    trill = 1 + 0.04 * np.sin(40 * place)
    sweep = pen.pick(-0.5, 0.5)
    calling: Wave = np.sin(np.pi * place)
    return pen.tone(pitch * own * trill * np.exp(sweep * (place - 0.5))) * calling


def beep(pen: Pen) -> Wave:
    on = (pen.t / pen.pick(0.12, 0.7) + pen.pick(0, 0.3)) % 1 < pen.pick(0.35, 0.65)
    edge = np.ones(round(0.004 * pen.rate))
    tone = pen.tone(pen.pitch(450, 3200), SQUARE if pen.chance(0.5) else PURE)
    return tone * np.convolve(on, edge / len(edge), "same")


THINGS: tuple[Callable[[Pen], Wave], ...] = (bell, siren, knock, rain, whistle, engine, bird, beep)
NAMES = tuple(each.__name__ for each in THINGS)


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


def main(to: Path) -> None:
    for name, content in one_of_each().items():
        files.write_bytes(to / f"{name}.wav", content)


if __name__ == "__main__":
    start(main)
