"""What libraries know by name or keep in a folder: taken whole, and in the size that is asked."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import onnx
import pytest
import torch

from scripts.base.errors import UserError
from scripts.intake import metadata
from scripts.intake.original import explain_refusals
from scripts.steps import intake
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import timm  # isort: skip
import transformers  # isort: skip

assert torchvision

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
LAYERS = SMALL | {"intermediate_size": 8}


def test_a_folder_without_the_last_layer(tmp_path: Path) -> None:
    """transformers makes one up, which answers by chance."""
    config = transformers.ViTConfig(**LAYERS, image_size=32)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="lacks 2 weights of ViTForImageClassification"):
        intake.take(str(tmp_path), "default", None, False, tmp_path / "model.onnx")


def save_small(folder: Path, kind: torch.dtype = torch.float32, **config: object) -> None:
    how = transformers.ViTConfig(**LAYERS, image_size=32, **config)
    transformers.ViTForImageClassification(how).to(kind).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_folder_in_half_precision(kind: torch.dtype, tmp_path: Path) -> None:
    save_small(tmp_path, kind)
    intake.take(str(tmp_path), "default", None, False, network := tmp_path / "model.onnx")
    (taken,) = onnx.load(network).graph.input
    assert taken.type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_weights_for_what_has_its_own(tmp_path: Path) -> None:
    save_small(tmp_path)
    with pytest.raises(UserError, match="WEIGHTS= is for a network of timm's"):
        intake.take(str(tmp_path), "mine.pth", None, False, tmp_path / "model.onnx")


def test_the_size_that_timm_tested_is_prepared_as_it_was(tmp_path: Path) -> None:
    """A new version of a network is asked for in the size of its first."""
    whole, given, other = (
        intake.take("timm/test_resnet", "random", size, False, tmp_path / "model.onnx").pictures
        for size in (None, (160, 160), (64, 64))
    )
    assert whole == given and other["crop"] == 64


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_a_network_of_grey_pictures(library: str, tmp_path: Path) -> None:
    if library == "timm":
        model = timm.create_model("test_resnet", in_chans=1, num_classes=3)
        timm.models.save_for_hf(model, tmp_path, model_args={"in_chans": 1})
    else:
        save_small(tmp_path, num_channels=1)
        how = {"size": {"height": 32, "width": 32}, "image_mean": [0.5], "image_std": [0.5]}
        transformers.ViTImageProcessor(**how).save_pretrained(tmp_path)
    found = intake.take(str(tmp_path), "default", None, False, network := tmp_path / "model.onnx")
    (taken,) = onnx.load(network).graph.input
    assert taken.type.tensor_type.shape.dim[1].dim_value == 1
    assert [found.pictures[key] for key in ("channels", "mean")] == ["grey", [0.5]]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"problem_type": "regression"}, "gives values, not classes"),
        ({"id2label": {"1": "cat", "2": "dog"}}, "does not number its classes from 0"),
    ],
)
def test_a_config_of_no_classes(said: dict[str, object], cause: str, tmp_path: Path) -> None:
    save_small(tmp_path)
    config = json.loads((file := tmp_path / "config.json").read_text())
    file.write_text(json.dumps(config | said))
    with pytest.raises(UserError, match=cause):
        intake.take(str(tmp_path), "default", None, False, tmp_path / "model.onnx")


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_the_size_of_a_network_of_timms(name: str, tmp_path: Path) -> None:
    intake.take(f"timm/{name}", "random", (64, 64), False, tmp_path / "model.onnx")
    (taken,) = onnx.load(tmp_path / "model.onnx").graph.input
    assert [each.dim_value for each in taken.type.tensor_type.shape.dim][2:] == [64, 64]


def test_weights_of_timms_with_classes_of_ones_own(tmp_path: Path) -> None:
    weights = tmp_path / "mine.pth"
    torch.save(timm.create_model("test_resnet", num_classes=10).state_dict(), weights)
    intake.take("timm/test_resnet", str(weights), (64, 64), False, tmp_path / "model.onnx")
    (scores,) = onnx.load(tmp_path / "model.onnx").graph.output
    assert scores.type.tensor_type.shape.dim[-1].dim_value == 10


def test_a_folder_that_does_not_say_its_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**LAYERS, image_size=32)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    for given, what in ((False, "SIZE=224 PICTURES="), (True, "try another SIZE=")):
        with pytest.raises(UserError) as refusal:
            intake.take(str(tmp_path), "default", None, given, tmp_path / "model.onnx")
        assert what in refusal.value.remedy
    intake.take(str(tmp_path), "default", (32, 32), True, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "more",
    [{"image_processor_type": "Pix2StructImageProcessor"}, {"size": None}, {"image_std": [0] * 3}],
    ids=str,
)
def test_a_processor_that_prepares_no_picture(more: dict[str, object], tmp_path: Path) -> None:
    tiny = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(hidden_size=16, image_size=32, patch_size=16, **tiny)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    known = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(known | more))
    with pytest.raises(UserError, match="prepares pictures in a way that is not known here"):
        intake.take(str(tmp_path), "default", None, False, tmp_path / "model.onnx")


KINDS = """
    Beit Bit ChineseCLIP CLIP ConvNext DeiT EfficientNet Levit MobileNetV1 MobileNetV2 MobileViT
    Perceiver PoolFormer Pvt Segformer Siglip TextNet ViT
"""


@pytest.mark.parametrize("kind", KINDS.split())
def test_a_size_of_one_number_is_what_transformers_makes_of_it(kind: str) -> None:
    """In files of earlier days, beside a network in ONNX."""
    how = {"crop_size": 224, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
    given = {"size": 256, "crop_pct": 0.875, "do_normalize": True, "do_center_crop": True, **how}
    if kind not in ("ConvNext", "PoolFormer"):
        del given["crop_pct"]
    processor = getattr(transformers, f"{kind}ImageProcessor")(**given).to_dict()
    found = metadata.of_hugging_face(given | {"image_processor_type": f"{kind}ImageProcessor"})
    for key in ("fit", "crop", "resize"):
        assert found[key] == metadata.of_hugging_face(processor)[key]


def test_the_margin_of_a_processor_stays_where_a_size_is_given(tmp_path: Path) -> None:
    sides = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    config = transformers.ResNetConfig(**sides, layer_type="basic")
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path)
    processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875)
    processor.save_pretrained(tmp_path)
    network = tmp_path / "model.onnx"
    for size, side in ((None, 64), ((64, 64), 64), ((96, 96), 96)):
        found = intake.take(str(tmp_path), "default", size, False, network)
        (taken,) = onnx.load(network).graph.input
        assert taken.type.tensor_type.shape.dim[-1].dim_value == side
        assert [found.pictures[key] for key in ("resize", "crop")] == [73, 64]


class Two(torch.nn.Module):  # type: ignore[misc]
    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return pixels.mean((2, 3)), pixels.amax((1, 2, 3))


def test_a_script_with_several_outputs(tmp_path: Path) -> None:
    """As Hugging Face's networks give them."""
    script, network = tmp_path / "net.pt", tmp_path / "model.onnx"
    torch.jit.trace(Two(), torch.zeros(1, 3, 8, 8)).save(script)
    intake.take(str(script), "default", (8, 8), False, network)
    assert len(onnx.load(network).graph.output) == 2


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_a_program_whose_export_answers_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: torch.dtype
) -> None:
    source, export, example = tmp_path / "net.pt2", torch.onnx.export, torch.zeros(1, 3, 8, 8)
    torch.export.save(torch.export.export(Two(), (example.to(kind),)), source)
    intake.take(str(source), "default", (8, 8), False, tmp_path / "model.onnx", trusted=True)

    def export_another(program: object, given: object, path: Path, **how: bool) -> None:
        doubled = torch.nn.Sequential(Two(), Doubled())
        export(torch.export.export(doubled, (example.to(kind),)), (), path, **how)

    monkeypatch.setattr(torch.onnx, "export", export_another)
    with pytest.raises(UserError, match="answers otherwise than PyTorch: scores"):
        intake.take(str(source), "default", (8, 8), False, tmp_path / "model.onnx", trusted=True)


@pytest.mark.parametrize("given", [torch.zeros(1, 8, dtype=torch.int64), 3])
def test_a_program_that_noise_says_nothing_of(tmp_path: Path, given: object) -> None:
    """Of few words or kinds, say, it would ask for one that is not there."""
    program = Mock(example_inputs=((given,), {}))
    intake._require_the_program(program, tmp_path / "model.onnx")
    program.module.assert_not_called()


class Doubled(torch.nn.Module):  # type: ignore[misc]
    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return 2 * both[0], both[1]


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source := tmp_path / "net.pt2").touch()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(torch.export, "load", Mock(side_effect=full))
    with pytest.raises(UserError, match="no space left") as refused:
        intake.take(str(source), "default", None, False, tmp_path / "model.onnx", trusted=True)
    assert refused.value.remedy.startswith("make room")
    monkeypatch.setattr("scripts.artefacts.onnx_file.trace_to_file", Mock(side_effect=full))
    with pytest.raises(UserError, match="no space left"):
        intake._trace(None, None, tmp_path / "model.onnx")


def test_an_engines_reason_comes_last() -> None:
    where = "load_utils.h:46 void ValidateOpsetForDomain(const std::unordered_map<std::string>&)"
    fault = RuntimeError(f"FAIL : {where * 5} official support is till opset 26.")
    with pytest.raises(UserError) as refused, explain_refusals("net.onnx"):
        raise fault
    said = refused.value.cause
    assert said.startswith("net.onnx cannot be run: FAIL : load_utils.h")
    assert said.endswith("till opset 26.") and len(said) < 350
