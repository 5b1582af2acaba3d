"""What plain PyTorch hears in sounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tests.project import ROOT

if TYPE_CHECKING:  # which import PyTorch, or much else
    from kinds.sound.export import Listener
    from kinds.sound.recipe import Sound
    from kinds.sound.serving.sounds import Hearing


def sounds_recipe() -> Sound:
    from kinds.sound.recipe import Sound
    from scripts.recipes.schema import load

    recipe = load(ROOT / "kinds" / "sound" / "sounds.yaml")
    assert isinstance(recipe, Sound)
    return recipe


def listener_of(weights: str, **changes: Any) -> Listener:
    from kinds.sound.export import Listener

    return Listener(weights, sounds_recipe().hearing.model_dump(), **changes)


def build_network(spec: Listener) -> tuple[Any, list[str]]:
    """The network, and the names of its classes."""
    from kinds.sound import network

    module, labels, _ = network.build(spec.weights, spec.hearing, spec.labels)
    return module, labels


def sounds_by_pytorch(weights: Path, files: list[bytes]) -> list[NDArray[np.float32]]:
    """Each by itself, window by window: log-mel bands by torch.stft, and the mean of the
    probabilities."""
    import torch

    from kinds.sound.serving import sounds, wav

    how, found = sounds_recipe().hearing.as_hearing, []
    module, _ = build_network(listener_of(str(weights)))
    for file in files:
        sound = wav.read(file, how.longest)
        windows = sounds.cut(sounds.resample(sound.samples, sound.rate, how.rate), how)
        heard = log_mel_by_pytorch(windows, how)
        with torch.inference_mode():
            found.append(module(heard[:, None].float()).softmax(1).mean(0).numpy())
    return found


def log_mel_by_pytorch(windows: NDArray[np.float32], how: Hearing) -> Any:
    """The formula of torchaudio.transforms.MelSpectrogram with center=False, clamped and
    logarithmic."""
    import torch

    spectrum = torch.stft(
        torch.from_numpy(windows).double(),
        how.fft,
        how.hop,
        window=torch.hann_window(how.fft, dtype=torch.float64),
        center=False,
        return_complex=True,
    )
    frequencies = torch.linspace(0, how.rate / 2, how.fft // 2 + 1, dtype=torch.float64)
    ends = [2595 * np.log10(1 + hertz / 700) for hertz in (how.low, how.high)]
    points = 700 * (10 ** (torch.linspace(*ends, how.mels + 2, dtype=torch.float64) / 2595) - 1)
    slopes = points[None] - frequencies[:, None]
    falling = -slopes[:, :-2] / points.diff()[:-1]
    rising = slopes[:, 2:] / points.diff()[1:]
    filters = torch.minimum(falling, rising).clamp(min=0)
    power = spectrum.abs() ** 2
    return (filters.T @ power).clamp(min=1e-6).log()
