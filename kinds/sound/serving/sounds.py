"""The bytes of a sound -> what a network hears of it: windows of mel bands. Pure functions: no
Triton here.

Sums of products are einsum's: matrix products would start threads in each process, which spin after
each, and take five times the processor's time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bundle_serving import work

from . import wav
from .wav import Samples, SoundError

LOG_MEL, SHARES = "LOG_MEL", "SHARES"
# Below this a band is silent; the logarithm of 0 would be infinite.
SILENCE = 1e-6
# A resampling filter reaches over so many zeros of its sine on either side; beyond this share of
# the lower rate's highest frequency it begins to fade. (librosa's "kaiser_fast".)
ZEROS, ROLL_OFF, KAISER = 16, 0.85, 8.555504641634386
# At most so many places between two samples: of odd rates the pitch is then a thousandth off.
MOST_PLACES = 1000


@dataclass(frozen=True)
class Hearing:
    """How sounds are prepared for a network."""

    rate: int  # samples a second
    seconds: float  # of a window: what the network hears at a time
    longest: float  # of a sound, in seconds
    fft: int  # samples of a frame
    hop: int  # from one frame to the next
    mels: int  # bands
    low: float  # the lowest band's frequency
    high: float  # the highest's

    @classmethod
    def load(cls, path: Path) -> Hearing:
        return cls(**json.loads(path.read_text()))

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @property
    def samples(self) -> int:
        """Of a window."""
        return round(self.seconds * self.rate)

    @property
    def frames(self) -> int:
        """Of a window."""
        return 1 + (self.samples - self.fft) // self.hop

    @property
    def most_windows(self) -> int:
        return math.ceil(self.longest / self.seconds)


def to_windows(files: Sequence[Any], how: Hearing) -> dict[str, NDArray[np.float32]]:
    """Each file's windows [files, windows, mels, frames], and each one's share of the answer;
    0 where what is shorter than the longest is filled up."""
    heard = [wav.read(file, how.longest) for file in files]
    seconds = len(heard) * max(len(each.samples) / each.rate for each in heard)
    if seconds > (most := work.SOUNDS * how.longest):
        raise SoundError(
            f"the sounds of this request take {seconds:.0f} s together, each as long as the "
            f"longest, and the limit is {most:g} s; send fewer at once"
        )
    each = [log_mel(cut(resample(one.samples, one.rate, how.rate), how), how) for one in heard]
    windows = np.zeros((len(each), max(map(len, each)), how.mels, how.frames), np.float32)
    shares = np.zeros(windows.shape[:2], np.float32)
    for row, mels in enumerate(each):
        windows[row, : len(mels)] = mels
        shares[row, : len(mels)] = 1 / len(mels)
    return {LOG_MEL: windows, SHARES: shares}


def cut(samples: Samples, how: Hearing) -> Samples:
    """Windows [n, samples] over all of a sound, evenly; what is shorter ends with silence."""
    if len(samples) < how.samples:
        samples = np.pad(samples, (0, how.samples - len(samples)))
    # An odd rate, which is not hit exactly, may make the longest sound a little longer.
    count = min(math.ceil(len(samples) / how.samples), how.most_windows)
    starts = np.linspace(0, len(samples) - how.samples, count)
    return np.stack([samples[at : at + how.samples] for at in starts.round().astype(int)])


def log_mel(windows: Samples, how: Hearing) -> NDArray[np.float32]:
    """[n, samples] -> the logarithm of each band's power, [n, mels, frames]: as torchaudio's
    MelSpectrogram with center=False, clamped at SILENCE."""
    frames = sliding_window_view(windows, how.fft, axis=1)[:, :: how.hop]
    power = np.abs(np.fft.rfft(frames * _hann(how.fft))) ** 2
    bands = np.einsum("nfk,mk->nmf", power, _filters(how))
    found: NDArray[np.float32] = np.log(np.maximum(bands, SILENCE)).astype(np.float32)
    return found


@cache
def _hann(length: int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    return found


@cache
def _filters(how: Hearing) -> NDArray[np.float64]:
    """[mels, frequencies]: a triangle for each band, from its neighbours' middles."""
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (how.low, how.high))
    edges = 700 * (10 ** (np.linspace(low, high, how.mels + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(how.fft, 1 / how.rate)[:, None]
    rising = (frequencies - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies) / np.diff(edges)[1:]
    filters: NDArray[np.float64] = np.minimum(rising, falling).clip(0).T
    return np.ascontiguousarray(filters)


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """By a windowed sine, which takes away what the lower rate cannot hold."""
    if rate == wanted:
        return samples
    ratio = Fraction(rate, wanted).limit_denominator(MOST_PLACES)
    up, down = ratio.denominator, ratio.numerator
    bank = _bank(up, down)
    reach = bank.shape[1] // 2
    count = math.ceil(len(samples) * up / down)
    padded = np.pad(samples, (reach, reach + down + 1))
    around = sliding_window_view(padded, bank.shape[1])
    found = np.empty(count, np.float32)
    # Every up-th of the new samples lies at the same place between two of the old ones.
    for phase in range(min(up, count)):
        begin, several = phase * down // up, len(range(phase, count, up))
        found[phase::up] = np.einsum("nt,t->n", around[begin::down][:several], bank[phase])
    return found


@lru_cache(maxsize=8)
def _bank(up: int, down: int) -> Samples:
    """The filter for each of `up` places between two samples, [up, taps]."""
    slower = min(1.0, up / down) * ROLL_OFF
    reach = math.ceil(ZEROS / slower)
    places = (np.arange(up) * down % up / up)[:, None]
    distances = np.arange(-reach, reach + 1) - places
    fading = np.i0(KAISER * np.sqrt((1 - (distances / reach) ** 2).clip(0))) / np.i0(KAISER)
    inside = np.abs(distances) <= reach
    bank: Samples = (slower * np.sinc(slower * distances) * fading * inside).astype(np.float32)
    return bank
