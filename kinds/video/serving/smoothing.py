"""Probabilities smoothed over the frames of videos, of several at once. No Triton here."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float32]

RULES = "smoothing.json"  # in the version folder


class NoRoom(Exception):
    """As many streams as there may be."""


@dataclass(frozen=True)
class Rules:
    smoothing: float  # the weight of the newest frame
    streams: int
    idle_s: float

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Smoothed:
    """A stream, after a frame."""

    probabilities: Probabilities
    frames: int  # since it began
    at: float


def smooth(before: Probabilities, newest: Probabilities, weight: float) -> Probabilities:
    """One step of an exponential moving average."""
    average: Probabilities = before + np.float32(weight) * (newest - before)
    return average


class Streams:
    """Each by its number or name. One whose client has vanished is forgotten when another wants its
    place: Triton frees a sequence that is idle, and does not tell the model."""

    def __init__(self, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules, self._clock = rules, clock
        self._streams: dict[int | str, Smoothed] = {}

    def add(
        self, stream: int | str, newest: Probabilities, *, begins: bool = False, ends: bool = False
    ) -> Smoothed:
        """The stream with this frame. It begins anew if another network, with other classes, has
        come into the place of its own."""
        before = None if begins else self._streams.get(stream)
        if before is None or before.probabilities.shape != newest.shape:
            after = Smoothed(newest.copy(), 1, self._clock())
        else:
            average = smooth(before.probabilities, newest, self._rules.smoothing)
            after = Smoothed(average, before.frames + 1, self._clock())
        if ends:
            self._streams.pop(stream, None)
        else:
            self._require_room(stream)
            self._streams[stream] = after
        return after

    def _require_room(self, stream: int | str) -> None:
        if stream in self._streams or len(self._streams) < self._rules.streams:
            return
        oldest = self._clock() - self._rules.idle_s
        self._streams = {number: each for number, each in self._streams.items() if each.at > oldest}
        if len(self._streams) >= self._rules.streams:
            raise NoRoom(
                f"{self._rules.streams} streams are watched already; try again when one has ended"
            )
