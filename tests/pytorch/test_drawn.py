"""The network of drawings: what it is shown, what it knows, and what becomes of it."""

import errno
import io
import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bundle_serving.agreement import Agreement, Bound
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.scores import softmax
from scripts.artefacts.drawn.drawings import SIDE, many
from scripts.artefacts.drawn.things import NAMES
from scripts.artefacts.manifest import Manifest, Torchvision
from scripts.artefacts.picture import mug
from scripts.base.errors import NoWeights, UserError
from scripts.settings.choices import DRAWN
from scripts.steps import engine, export, networks, quantise
from scripts.steps.eight_bits import Quantiser
from scripts.steps.engine import Check
from scripts.steps.quantise import Asked, Quantised
from scripts.steps.vision import torchvision

UNSEEN = 12345


def test_drawings_are_the_same_for_a_seed_and_else_all_different() -> None:
    pixels, labels = many(32, UNSEEN)
    again, _ = many(32, UNSEEN)
    others, _ = many(32, UNSEEN + 1)
    assert pixels.shape == (32, 3, SIDE, SIDE) and np.array_equal(pixels, again)
    assert len({each.tobytes() for each in (*pixels, *others)}) == 64
    assert np.bincount(labels).tolist() == [4] * len(NAMES)


def test_it_knows_drawings_that_it_has_not_seen_and_how_sure_it_may_be(trained: Path) -> None:
    pixels, labels = many(400, UNSEEN)
    network = networks.build(Torchvision(DRAWN, str(trained)))
    scores = networks.make_asker(networks.Pixels(network).eval())(pixels)
    right = (scores.argmax(1) == labels).mean()
    assert right >= 0.95
    assert abs(softmax(scores).max(1).mean() - right) < 0.04


@pytest.mark.parametrize("arch", [DRAWN, "squeezenet1_1"])
def test_weights_of_another_network_are_refused_in_one_line(tmp_path: Path, arch: str) -> None:
    """As when only ARCH changes, and the live version's WEIGHTS stay."""
    weights = tmp_path / "weights.safetensors"
    save_file({f"layer{number}.weight": torch.zeros(3) for number in range(300)}, weights)
    with pytest.raises(UserError, match=f"weights.safetensors has no weights of {arch}") as refused:
        networks.build(Torchvision(arch, str(weights)))
    assert len(refused.value.cause) < 300 and "WEIGHTS=default" in refused.value.remedy


def test_weights_saved_otherwise_are_read_or_refused_by_what_they_hold(tmp_path: Path) -> None:
    module, weights = torchvision.models.squeezenet1_1(num_classes=3), tmp_path / "net.pth"
    state = module.state_dict()
    for wrapper in ("module.", "model.", "module._orig_mod."):
        wrapped = {f"{wrapper}{name}": each for name, each in state.items()}
        save_file(wrapped, tmp_path / "p.safetensors")
        assert networks.read_state(tmp_path / "p.safetensors").keys() == state.keys()
        torch.save({"model": wrapped, "epoch": 3, "args": Namespace(lr=0.1)}, weights)
        assert networks.read_state(weights).keys() == state.keys()
    torch.save({"epoch": 3, "net": state}, weights)
    with pytest.raises(UserError, match=r"net\.pth contains epoch, net, not a state dict"):
        networks.read_state(weights)
    beside = {f"model.{name}": each for name, each in state.items()} | {"mean": torch.zeros(3)}
    torch.save(beside, weights)
    with pytest.raises(UserError, match=r"its model\.features\.0\.weight is none of") as refused:
        networks.fill_weights(module, networks.read_state(weights), "it", weights)
    assert 'without "model." before their names: features.0.weight' in refused.value.remedy
    with pytest.raises(UserError, match="its n_averaged is none of them") as refused:
        networks.fill_weights(module, state | {"n_averaged": torch.tensor(1)}, "it", weights)
    assert "weights alone: features.0.weight" in refused.value.remedy
    torch.save(module, weights)
    with pytest.raises(UserError, match=r"it holds torchvision\.\S+\.SqueezeNet, which is code"):
        networks.read_state(weights)


def test_the_mug_of_the_demo_is_a_mug(trained: Path) -> None:
    network = networks.build(Torchvision(DRAWN, str(trained)))
    file = io.BytesIO()
    mug().save(file, "JPEG", quality=92)
    pixels = to_pixels(file.getvalue(), Transform(**network.transform))
    (found,) = softmax(networks.make_asker(networks.Pixels(network).eval())(pixels[None]))
    assert network.labels[found.argmax()] == "drawn mug"
    assert found.max() > 0.8


def test_half_the_bits_are_judged_on_photos_or_else_on_scenes(
    trained: Path, drawings: Path, tmp_path: Path
) -> None:
    onnx = tmp_path / "onnx"
    export.export(Torchvision(DRAWN, str(trained)), onnx)
    told = len(np.load(onnx / "reference.npz")["pixels"])
    decision = engine.decide(Check(onnx, "bf16"))
    assert decision["check"]["pictures"] == told + engine.MOST_PICTURES
    samples, out = tmp_path / "samples", tmp_path / "engine"
    shutil.copytree(drawings, samples)
    check = Check(onnx, "bf16", samples)
    engine.choose_precision(check, out)
    judged = json.loads((out / "engine.json").read_text())["check"]["pictures"]
    assert judged == told + len(list(samples.iterdir()))
    assert check.fits(out)
    assert Check(onnx, "bf16").fits(out)  # those of the last check will do
    (samples / "another.jpg").write_bytes(b"")
    assert not check.fits(out)


def test_it_is_exported_and_proved_in_eight_bits(
    trained: Path, drawings: Path, tmp_path: Path
) -> None:
    export.export(Torchvision(DRAWN, str(trained), samples=drawings), tmp_path / "onnx")
    made = Manifest.load(tmp_path / "onnx" / "manifest.json")
    assert made and made.onnx["classes"] == len(NAMES) and not made.untrained
    quantise.quantise(Quantised(tmp_path / "onnx", drawings, 99), tmp_path / "int8")
    decision = engine.decide(Check(tmp_path / "int8", "int8"))
    assert decision["precision"] == "int8"


def test_layers_stay_in_float32_until_int8_is_near_enough(trained: Path, tmp_path: Path) -> None:
    export.export(Torchvision(DRAWN, str(trained)), tmp_path / "onnx")
    network, pixels = tmp_path / "onnx" / "model.onnx", many(40, UNSEEN)[0]
    quantiser = Quantiser(network, list(pixels), tmp_path)
    scores, out = engine.scores(network, pixels, "fp32"), tmp_path / "int8.onnx"

    def made(bound: Bound) -> tuple[list[str], Agreement]:
        return quantise.fastest(quantiser, Asked(pixels, scores, "single-label", bound), out)

    kept, all_int8 = made(Bound(1))
    assert not kept and all_int8.max_difference > 0
    kept, mixed = made(Bound(0.8 * all_int8.max_difference))
    assert kept and set(kept) < set(quantiser.layers)
    assert mixed.max_difference <= 0.8 * all_int8.max_difference
    with pytest.raises(UserError, match="half of the layers"):
        made(Bound(0))


def test_a_disk_that_a_download_fills_is_no_lack_of_weights() -> None:
    def download(_: object = None, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError) as refused:
        networks.download_weights("resnet50", SimpleNamespace(get_state_dict=download), "give one")
    assert refused.value.remedy.startswith("make room")
    cut_off = SimpleNamespace(get_state_dict=Mock(side_effect=RuntimeError("invalid hash value")))
    with pytest.raises(NoWeights, match="invalid hash") as refused:
        networks.download_weights("resnet50", cut_off, "give one")
    assert refused.value.remedy == "give one"
