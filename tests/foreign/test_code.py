"""Files that would run code when they are read: none does."""

import builtins
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scripts.base.errors import UserError
from scripts.intake import torch_files
from scripts.steps import engine, intake
from scripts.steps.networks import read_state
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import transformers  # isort: skip

assert torchvision

SIDE = 32


class Marked:
    """Leaves a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._marker), "w")


class Small(torch.nn.Module):  # type: ignore[misc]  # torch comes without types here
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Conv2d(3, 5, 3)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(pixels).mean((2, 3))
        return found


@pytest.fixture(autouse=True)
def _confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks at a terminal gets a yes."""
    monkeypatch.setattr(builtins, "input", lambda _="": "y")
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)


def require_refused(source: Path | str, cause: str, marker: Path, weights: str = "default") -> None:
    marker.unlink(missing_ok=True)  # of making it
    with pytest.raises(UserError, match=cause) as refusal:
        intake.take(str(source), weights, (SIDE, SIDE), False, marker.with_name("model.onnx"))
    assert not marker.exists()
    assert "\n" not in f"{refusal.value.cause}{refusal.value.remedy}"


def pickled(marker: Path) -> bytes:
    file = io.BytesIO()
    torch.save((Marked(marker),), file)
    return file.getvalue()


# PyTorch's programs.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "sound.pt2"
    shapes = ({0: torch.export.Dim("batch")},)
    example = torch.zeros(2, 3, SIDE, SIDE)
    torch.export.save(torch.export.export(Small(), (example,), dynamic_shapes=shapes), path)
    return path


Change = Callable[[str, bytes, Path], bytes]


def in_its_example(record: str, content: bytes, marker: Path) -> bytes:
    return pickled(marker) if record.endswith("sample_inputs/model.pt") else content


def in_a_weight(record: str, content: bytes, marker: Path) -> bytes:
    if record.endswith("weights/weight_0"):
        return pickled(marker)
    return content.replace(b'"use_pickle": false', b'"use_pickle": true')


def in_an_object(record: str, content: bytes, marker: Path) -> bytes:
    if record.endswith("model_constants_config.json"):
        held = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False}
        return json.dumps({"config": {"x": held | {"tensor_meta": None}}}).encode()
    return content


def in_a_constant(record: str, content: bytes, marker: Path) -> bytes:
    if record.endswith("model_constants_config.json"):
        held = {"path_name": "tensor_0", "is_param": False, "use_pickle": True}
        return json.dumps({"config": {"x": held | {"tensor_meta": None}}}).encode()
    return content


def in_older_weights(record: str, content: bytes, marker: Path) -> bytes:
    return content


def in_a_size(record: str, content: bytes, marker: Path) -> bytes:
    """What sympy evaluates."""
    if not record.endswith("models/model.json"):
        return content
    program = json.loads(content)
    _replace_sizes(program, f"open({str(marker)!r}, 'w')")
    return json.dumps(program).encode()


def _replace_sizes(inside: Any, text: str) -> None:
    for value in inside.values() if isinstance(inside, dict) else inside:
        if isinstance(value, dict) and "expr_str" in value:
            value["expr_str"] = text
        if isinstance(value, (dict, list)):
            _replace_sizes(value, text)


HELD: dict[Change, dict[str, Callable[[Path], bytes]]] = {
    in_an_object: {"data/constants/opaque_obj_0": pickled},
    in_a_constant: {"data/constants/tensor_0": pickled},
    in_older_weights: {"data/weights/model.pt": pickled},
}


def changed(sound: Path, change: Change, marker: Path) -> Path:
    path = marker.with_name("model.pt2")
    with zipfile.ZipFile(sound) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name), marker))
        root = before.namelist()[0].partition("/")[0]
        for name, make in HELD.get(change, {}).items():
            after.writestr(f"{root}/{name}", make(marker))
    return path


@pytest.mark.parametrize(
    "change",
    [in_its_example, in_a_weight, in_an_object, in_a_constant, in_older_weights],
    ids=lambda change: str(change.__name__),
)
def test_a_program_that_holds_a_pickle(sound: Path, change: Change, tmp_path: Path) -> None:
    """Whoever made it."""
    path, marker = changed(sound, change, tmp_path / "marker"), tmp_path / "marker"
    require_refused(path, "holds a pickle .* which runs code when it is read", marker)
    with pytest.raises(UserError, match="holds a pickle"):
        intake.take(str(path), "default", None, False, tmp_path / "model.onnx", trusted=True)
    assert not marker.exists()


def test_a_program_that_holds_a_library(sound: Path, tmp_path: Path) -> None:
    path = changed(sound, in_older_weights, tmp_path / "marker")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("sound/data/aotinductor/model/run.so", b"\x7fELF")
    with pytest.raises(UserError, match=r"holds a (compiled library|pickle)"):
        torch_files.require_no_pickles(path)


def test_a_program_is_code(sound: Path, tmp_path: Path) -> None:
    hostile, marker = changed(sound, in_a_size, tmp_path / "marker"), tmp_path / "marker"
    require_refused(hostile, "is a program, whose text PyTorch evaluates", marker)
    require_refused(sound, "is a program, whose text PyTorch evaluates", marker)
    intake.take(str(sound), "default", None, False, tmp_path / "model.onnx", trusted=True)
    assert (tmp_path / "model.onnx").exists()


def test_a_script_that_writes_files(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Writing(Small):
        def __init__(self) -> None:
            super().__init__()
            self.where = str(marker)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            torch.save(pixels, self.where)
            return self.last(pixels).mean((2, 3))

    class Read(Small):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            read = torch.from_file("/etc/hostname", False, 1)
            return self.last(pixels).mean((2, 3)) + read

    for module, word in ((Writing(), "save"), (Read(), "from_file")):
        torch.jit.script(module).save(tmp_path / "net.pt")
        require_refused(tmp_path / "net.pt", rf"more than arithmetic \({word}\)", marker)
    torch.jit.script(Small()).save(tmp_path / "net.pt")
    assert not torch_files.reaches_out(tmp_path / "net.pt")


def test_scripts_of_usual_networks_are_arithmetic(tmp_path: Path) -> None:
    for arch in ("mobilenet_v3_small", "vit_b_16", "densenet121"):
        with torch.device("meta"):
            module = torchvision.models.get_model(arch, weights=None)
        scripted = torch.jit.script(module.to_empty(device="cpu").eval())
        scripted.save(tmp_path / "net.pt")
        assert not torch_files.reaches_out(tmp_path / "net.pt")


# Weights.


def test_weights_that_are_code(tmp_path: Path) -> None:
    marker, weights = tmp_path / "marker", tmp_path / "net.pth"
    torch.save({"state_dict": Marked(marker)}, weights)
    require_refused(weights, "needs the code that it was saved with", marker)
    require_refused("timm/test_vit", "does not fit timm's test_vit", marker, str(weights))
    with pytest.raises(UserError, match=r"weights: it holds \S+, which is code"):
        read_state(weights)
    np.savez(tmp_path / "reference.npz", scores=np.array([Marked(marker)], object))
    arrays = str(tmp_path / "reference.npz")
    require_refused("timm/test_vit", "does not fit timm's test_vit", marker, arrays)
    with pytest.raises(ValueError, match="allow_pickle"):  # as a backup may have brought it
        engine.references(tmp_path)
    assert not marker.exists()


# Hugging Face's.

CODE = """
open({marker!r}, "w")
from transformers import PretrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerFast as Tokenizer
from transformers import ViTImageProcessor as Processor
class Config(PretrainedConfig):
    model_type = "own"
class Network(PreTrainedModel):
    config_class = Config
"""


def folder_of_code(folder: Path, marker: Path, kind: str) -> Path:
    """One that brings its code, as the hub has them."""
    folder.mkdir()
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    config = {"model_type": "own", "architectures": [kind.replace("Auto", "")]}
    named = {"AutoConfig": "own.Config", kind: "own.Network", "AutoTokenizer": "own.Tokenizer"}
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": named}))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"auto_map": {"AutoImageProcessor": "own.Processor"}})
    )
    torch.save({"a": Marked(marker)}, folder / "pytorch_model.bin")
    return folder


def test_a_folder_that_brings_code(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    folder = folder_of_code(tmp_path / "own", marker, "AutoModelForImageClassification")
    require_refused(folder, "brings code of its own", marker)
    with pytest.raises(UserError):  # its class has no network, but it is asked
        intake.take(str(folder), "default", None, False, tmp_path / "model.onnx", trusted=True)
    assert marker.exists()


def test_pickled_weights_of_hugging_faces(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    config.save_pretrained(tmp_path)
    transformers.ViTImageProcessor().save_pretrained(tmp_path)
    torch.save({"classifier.bias": Marked(marker)}, tmp_path / "pytorch_model.bin")
    require_refused(tmp_path, "cannot be loaded as a classifier of pictures", marker)
