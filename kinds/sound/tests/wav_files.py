"""WAV files, right or wrong, from their pieces."""

import struct

import numpy as np
from numpy.typing import NDArray

from kinds.sound.serving import wav
from scripts.recipes.folders import model_folder

Wave = NDArray[np.float64]

BELL = model_folder("sounds_preprocessing") / "warmup" / "bell.wav"


def sine(hertz: float, rate: int, seconds: float = 1) -> Wave:
    wave: Wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)
    return wave


def chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    size = len(content) if size is None else size
    return struct.pack("<4sI", name, size) + content + b"\0" * (len(content) % 2)


def form(coding: int, bits: int, channels: int = 1, rate: int = 8000) -> bytes:
    each = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", coding, channels, rate, rate * each, each, bits))


def riff(*chunks: bytes) -> bytes:
    content = b"WAVE" + b"".join(chunks)
    return struct.pack("<4sI", b"RIFF", len(content)) + content


def encoded(samples: Wave, coding: int, bits: int) -> bytes:
    if coding == wav.FLOAT:
        return samples.astype(f"<f{bits // 8}").tobytes()
    if bits == 8:
        return (samples * 127 + 128).round().astype(np.uint8).tobytes()
    wide = (samples * (2.0 ** (bits - 1) - 1)).round().astype("<i4")
    return wide.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()


def made(
    samples: Wave,
    coding: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate: int = 8000,
) -> bytes:
    content = encoded(np.repeat(samples, channels), coding, bits)
    return riff(form(coding, bits, channels, rate), chunk(b"data", content))
