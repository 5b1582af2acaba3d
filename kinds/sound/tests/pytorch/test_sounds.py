"""What is heard of sounds, held against PyTorch's own transforms; and the network that tells them
apart."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_serving.scores import softmax
from kinds.sound import drawings, export, network
from kinds.sound.drawings import DRAWN, NAMES
from kinds.sound.export import Listener
from kinds.sound.serving.sounds import LOG_MEL, log_mel, to_windows
from kinds.sound.tests.by_pytorch import (
    build_network,
    listener_of,
    log_mel_by_pytorch,
    sounds_recipe,
)
from scripts.artefacts.exporting import as_words, call, unless_it_fits
from scripts.artefacts.manifest import Manifest, why_export
from scripts.base import files
from scripts.base.errors import NoWeights, UserError
from tests.project import ROOT

UNSEEN = 12345


def test_log_mel_bands_are_those_of_pytorch() -> None:
    how, random = sounds_recipe().hearing.as_hearing, np.random.default_rng(0)
    each = [
        drawings.place_in_window(label, random, how.seconds, how.rate)
        for label in range(len(NAMES))
    ]
    windows = np.stack([*each, np.zeros(how.samples, np.float32)])
    found, expected = log_mel(windows, how), log_mel_by_pytorch(windows, how).numpy()
    assert found.shape == expected.shape == (len(windows), how.mels, how.frames)
    assert np.abs(found - expected).max() < 1e-4


def test_it_knows_sounds_that_it_has_not_heard_and_how_sure_it_may_be(listener: Path) -> None:
    how = sounds_recipe().hearing.as_hearing
    heard, labels = drawings.many(how, 400, UNSEEN)
    module, _ = build_network(listener_of(str(listener)))
    with torch.inference_mode():
        scores = module(torch.from_numpy(heard)[:, None]).numpy()
    right = (scores.argmax(1) == labels).mean()
    assert right >= 0.95
    assert abs(softmax(scores).max(1).mean() - right) < 0.05


def test_a_half_precise_network_is_near_enough_for_a_gpu(listener: Path, tmp_path: Path) -> None:
    spec = listener_of(str(listener), precision="fp16")
    words = [*map(str, as_words(spec)), "--out", str(tmp_path / "made")]
    call(unless_it_fits(export.export), words)
    made = Manifest.load(tmp_path / "made" / "manifest.json")
    assert made and made.check["max_difference"] < 0.01 and not made.untrained
    assert why_export(tmp_path / "made", spec) is None
    assert why_export(tmp_path / "made", listener_of(str(listener))) == "precision: fp16 -> fp32"


def test_sounds_may_be_bounded_to_a_window(tmp_path: Path) -> None:
    hearing = sounds_recipe().hearing.model_dump() | {"longest": 2.0}
    export.export(Listener(DRAWN, hearing), tmp_path / "made")
    made = Manifest.load(tmp_path / "made" / "manifest.json")
    assert made and made.transform == hearing


def test_weights_of_the_users_own(tmp_path: Path) -> None:
    """As many classes as the file has, called what stands beside it."""
    weights, labels = tmp_path / "street.pth", tmp_path / "street.txt"
    torch.save(network.network(3).state_dict(), weights)
    _, numbered = build_network(listener_of(str(weights)))
    assert numbered == ["class 0", "class 1", "class 2"]
    labels.write_text("tram\ncar\nhorn\n")
    _, named = build_network(listener_of(str(weights), labels=labels))
    assert named == ["tram", "car", "horn"]
    labels.write_text("tram\ncar\n")
    with pytest.raises(UserError, match=r"has 2 labels, and street.pth 3 classes"):
        build_network(listener_of(str(weights), labels=labels))
    torch.save({"fc.weight": torch.zeros(3, 3)}, weights)
    with pytest.raises(UserError, match="has no weights of this network"):
        build_network(listener_of(str(weights)))
    with pytest.raises(NoWeights, match=r"no weights file at gone\.pth"):
        listener_of("gone.pth").identity()


def test_what_the_documents_teach_it_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(
        r"```python\n(from pathlib.*?)```",
        (ROOT / "kinds" / "sound" / "README.md").read_text(),
        re.DOTALL,
    )
    (tmp_path / "kinds").symlink_to(ROOT / "kinds")
    for seed in range(8):
        for name, file in drawings.one_of_each(seed=seed).items():
            if name in ("beep", "rain"):
                files.write_bytes(tmp_path / "street" / name / f"{seed}.wav", file)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "teach.py", "exec"), {})
    module, labels = build_network(listener_of("street.pth", labels=Path("street.txt")))
    assert labels == ["beep", "rain"]
    asked = to_windows([drawings.one_of_each(seed=9)["rain"]], sounds_recipe().hearing.as_hearing)
    with torch.inference_mode():
        assert module(torch.from_numpy(asked[LOG_MEL][0, :1])[None]).argmax() == 1


def test_the_network_of_made_up_sounds_hears_as_it_was_trained_to() -> None:
    longer = {**listener_of("drawn").hearing, "longest": 99.0}
    _, labels = build_network(Listener("drawn", longer))
    assert labels[0] == "drawn bell"
    with pytest.raises(UserError, match="another `hearing`") as refused:
        build_network(Listener("drawn", longer | {"mels": 32}))
    assert "kinds.sound.training" in refused.value.remedy
