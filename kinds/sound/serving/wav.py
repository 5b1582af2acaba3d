"""The bytes of a WAV file -> samples. Pure functions: no Triton here. The bytes come from
strangers: every size is checked before anything is made of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

# Of a WAV file's samples: the coding and the bits of each -> how they lie there, and the largest.
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
CODINGS = {
    (PCM, 8): ("u1", 128.0),
    (PCM, 16): ("<i2", 2.0**15),
    (PCM, 24): ("u1", 2.0**31),  # three bytes each, which numpy has no type for
    (PCM, 32): ("<i4", 2.0**31),
    (FLOAT, 32): ("<f4", 1.0),
    (FLOAT, 64): ("<f8", 1.0),
}
CHANNELS = (1, 2)
SLOWEST, FASTEST = 4_000, 192_000  # samples a second
# Of floats, where 1 is as loud as integers can be; whoever records louder leaves less room.
LOUDEST = 100
# Before the samples; a file of nothing but empty chunks would be walked through for seconds.
MOST_CHUNKS = 100
# Written by programs that could not know it, for they wrote into a pipe.
UNKNOWN_SIZE = 0xFFFFFFFF
CONVERT = "convert it: ffmpeg -i FILE -c:a pcm_s16le sound.wav"


class SoundError(ValueError):
    """The caller's bytes are not a usable sound; the message says why and what would work."""


@dataclass(frozen=True)
class Sound:
    samples: Samples  # of one channel, from -1 to 1
    rate: int  # a second


@dataclass(frozen=True)
class _Format:
    coding: int
    channels: int
    rate: int
    bits: int

    @classmethod
    def parse(cls, chunk: bytes) -> _Format:
        if len(chunk) < 16:
            raise _explain_damage("its format is cut off")
        coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
        if coding == EXTENSIBLE and len(chunk) >= 26:
            (coding,) = struct.unpack_from("<H", chunk, 24)
        return cls(coding, channels, rate, bits)

    @property
    def bytes_each(self) -> int:
        """Of the samples of all channels at one time."""
        return self.channels * self.bits // 8

    def require(self) -> None:
        if (self.coding, self.bits) not in CODINGS:
            raise SoundError(
                f"the WAV file's samples are of coding {self.coding} with {self.bits} bits, and "
                f"PCM with 8, 16, 24 or 32 is read, or floats with 32 or 64; {CONVERT}"
            )
        if self.channels not in CHANNELS:
            raise SoundError(
                f"the sound has {self.channels} channels; send one or two: "
                "ffmpeg -i FILE -ac 1 sound.wav"
            )
        if not SLOWEST <= self.rate <= FASTEST:
            raise SoundError(
                f"the sound has {self.rate} samples a second; send from {SLOWEST} to {FASTEST}: "
                "ffmpeg -i FILE -ar 16000 sound.wav"
            )


def read(data: bytes | memoryview | NDArray[np.uint8], most_seconds: float) -> Sound:
    """Whatever follows the samples in the file is not read."""
    raw = memoryview(bytes(data))
    if not raw:
        raise SoundError("the sound is empty (0 bytes); send the bytes of a WAV file")
    begins = bytes(raw[:12])
    if begins[:4] != b"RIFF" or begins[8:] != b"WAVE":
        raise SoundError(f"not a WAV file (it begins with {begins!r}); {CONVERT}")
    how, content = _find_chunks(raw)
    count = len(content) // how.bytes_each
    if not count:
        raise SoundError("the sound has no samples; record it again")
    if count > most_seconds * how.rate:
        raise SoundError(
            f"the sound takes {count / how.rate:.1f} s, more than the limit of {most_seconds:g} s; "
            f"send a part of it: ffmpeg -i FILE -t {most_seconds:g} sound.wav"
        )
    return Sound(_samples(content[: count * how.bytes_each], how), how.rate)


def _find_chunks(raw: memoryview) -> tuple[_Format, memoryview]:
    """The format, and the bytes of the samples."""
    at, how = 12, None
    for _ in range(MOST_CHUNKS):
        if at + 8 > len(raw):
            raise _explain_damage("it ends before its samples")
        name, size = struct.unpack_from("<4sI", raw, at)
        at += 8
        if name == b"fmt ":
            how = _Format.parse(bytes(raw[at : at + min(size, 40)]))
        if name == b"data":
            if how is None:
                raise _explain_damage("it does not say how its samples are coded")
            how.require()
            if size != UNKNOWN_SIZE and size > len(raw) - at:
                raise _explain_damage(f"of {size} bytes of samples {len(raw) - at} are there")
            return how, raw[at : at + size]
        at += size + size % 2  # a chunk begins at an even place
    raise _explain_damage("it consists of too many pieces")


def _explain_damage(why: str) -> SoundError:
    return SoundError(f"the WAV file is damaged or truncated ({why}); send the whole, intact file")


def _samples(content: memoryview, how: _Format) -> Samples:
    kind, largest = CODINGS[how.coding, how.bits]
    numbers = np.frombuffer(content, kind)
    if how.bits == 24:
        wide = np.zeros((len(numbers) // 3, 4), np.uint8)
        wide[:, 1:] = numbers.reshape(-1, 3)
        numbers = wide.view("<i4")
    with np.errstate(over="ignore"):  # infinity, which is refused
        found = numbers.reshape(-1, how.channels).astype(np.float32)
    if not np.isfinite(found).all():
        raise SoundError("the sound contains NaN or infinity; send samples from -1 to 1")
    if how.coding == FLOAT and (peak := np.abs(found).max()) > LOUDEST:
        raise SoundError(
            f"the sound's floats go up to {peak:.6g}, as integers do; divide them by the largest "
            "integer, so that they go from -1 to 1"
        )
    if how.bits == 8:  # the only ones without a sign
        found -= largest
    samples: Samples = (found / np.float32(largest)).clip(-1, 1).mean(axis=1)
    return samples
