"""The rehearsal's trtexec and tensorrt backend are as strict as what they stand for."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.networks import needs_nvidias_builder, tiny
from tests.project import ROOT
from tests.python_backend import Tensor, program

REHEARSAL = ROOT / "tests" / "rehearsal"

pytestmark = [needs_nvidias_builder, pytest.mark.long]

BOTH = ("10.16.1", "11.1.0")
SHAPES = ("--minShapes=input:1x3x8x8", "--optShapes=input:2x3x8x8", "--maxShapes=input:4x3x8x8")

# Gone in 11.0, and gone for longer; both are still in many recipes.
REMOVED = ("--best", "--fp16", "--int8", "--calib=cache", "--layerPrecisions=a:fp16")
LONG_GONE = ("--explicitBatch", "--workspace=4096", "--buildOnly", "--maxBatch=8")


@dataclass
class Trtexec:
    folder: Path
    version: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Path:
        return self.folder / "model.plan"

    def start(self, onnx: Path, *words: str) -> subprocess.Popen[str]:
        played = {"REHEARSAL_TENSORRT": self.version, "REHEARSAL_COMPUTE_CAPABILITY": "8.6"}
        command = [sys.executable, str(REHEARSAL / "trtexec.py"), f"--onnx={onnx}"]
        return subprocess.Popen(
            [*command, f"--saveEngine={self.plan}", *words],
            env=os.environ | played | self.settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def build(self, onnx: Path, *words: str) -> tuple[int, str]:
        with self.start(onnx, "--stronglyTyped", *words) as run:
            output = run.communicate()[0]
        return run.returncode, output

    def built(self, *words: str) -> Path:
        code, output = self.build(tiny(self.folder / "model.onnx"), *SHAPES, *words)
        assert code == 0 and "&&&& PASSED TensorRT.trtexec" in output, output
        return self.plan


@pytest.fixture(params=BOTH)
def trtexec(request: pytest.FixtureRequest, tmp_path: Path) -> Trtexec:
    return Trtexec(tmp_path, request.param)


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    return tiny(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("version", "ends", "spelling"),
    [
        ("10.16.1", "Bindings", {"Format/Datatype": "Row major linear FP16 format"}),
        ("11.1.0", "I/O Tensors", {"Datatype": "Half"}),
    ],
)
def test_layers_are_described_as_the_version_does(
    tmp_path: Path, version: str, ends: str, spelling: dict[str, str]
) -> None:
    trtexec, layers = Trtexec(tmp_path, version), tmp_path / "layers.json"
    trtexec.built(f"--exportLayerInfo={layers}")
    assert "conv" in json.loads(layers.read_text())["Layers"]
    trtexec.built(f"--exportLayerInfo={layers}", "--profilingVerbosity=detailed")
    described = json.loads(layers.read_text())
    (conv,) = (each for each in described["Layers"] if each["Name"] == "conv")
    assert spelling.items() <= conv["Outputs"][0].items() and len(described[ends]) == 2


@pytest.mark.parametrize("word", [*REMOVED, *LONG_GONE])
def test_what_is_gone_is_unknown(tmp_path: Path, onnx: Path, word: str) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0")
    code, output = trtexec.build(onnx, *SHAPES, word)
    name, _, value = word.partition("=")
    assert code == 1 and not trtexec.plan.exists()
    assert f"[E] Unknown option: {name} {value}" in output and "&&&& FAILED" not in output
    _, output = Trtexec(tmp_path, "10.16.1").build(onnx, *SHAPES, word)
    assert (f"Unknown option: {name} {value}" in output) == (word in LONG_GONE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--optShapes=input:1xthreex8x8"], "stoi conversion failure: failed to parse minShapes"),
        (["--builderOptimizationLevel="], "stoi"),
        (["--profilingVerbosity=loud"], "Unknown profilingVerbosity: loud"),
        (["--stronglyTyped"], "Unknown option: --stronglyTyped"),
        (["model.onnx"], "Unknown option: model.onnx"),
        (["--versionCompatible"], "--versionCompatible is real but not played here"),
        ([each.replace("input", "other") for each in SHAPES], 'input tensor with name "other"'),
        ([each.replace("8x8", "9x9") for each in SHAPES], "profile has min=9, opt=9, max=9 but"),
        ([each.replace("x8x8", "x8") for each in SHAPES], "4 dimensions but profile 0 has 3"),
        ([SHAPES[0].replace("1x", "3x"), *SHAPES[1:]], "satisfy MIN<=OPT<=MAX"),
        ([], "no optimization profile has been defined"),
    ],
)
def test_bad_words_are_refused(tmp_path: Path, onnx: Path, words: list[str], message: str) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0")
    code, output = trtexec.build(onnx, *words)
    assert code == 1 and message in output
    assert not trtexec.plan.exists() or trtexec.plan.stat().st_size == 0


def test_bad_networks_are_refused_in_nvidias_words(tmp_path: Path) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0")
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"no network")
    wrong = {
        tiny(tmp_path / "late.onnx", cast=False): "does not support UINT8 types for intermediate",
        tiny(tmp_path / "mixed.onnx", weights=np.float32): "`input` type is Half but `kernel`",
        junk: "Failed to parse the ONNX model",
        tmp_path / "nowhere.onnx": "Input file cannot be found",
    }
    for onnx, message in wrong.items():
        code, output = trtexec.build(onnx, *SHAPES)
        assert code == 1 and message in output, output
        assert "Failed to parse onnx file" in output and "&&&& FAILED" in output
    fixed = tiny(tmp_path / "fixed.onnx", batch=1)
    assert "Static model does not take explicit shapes" in trtexec.build(fixed, *SHAPES)[1]


def test_fp32_is_built_without_a_word(trtexec: Trtexec) -> None:
    layers = trtexec.folder / "layers.json"
    fp32 = tiny(trtexec.folder / "fp32.onnx", TensorProto.FLOAT)
    words = (f"--exportLayerInfo={layers}", "--profilingVerbosity=detailed")
    assert trtexec.build(fp32, *SHAPES, *words)[0] == 0
    assert not {"Half", "Row major linear FP16 format"} & set(layers.read_text().split('"'))


def test_a_build_that_is_killed_leaves_an_empty_plan(tmp_path: Path, onnx: Path) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0", {"REHEARSAL_SECONDS": "60"})
    trtexec.plan.write_bytes(b"the plan from before")
    with trtexec.start(onnx, *SHAPES) as build:
        assert build.stdout is not None
        assert any("of the build left" in line for line in build.stdout)
        build.send_signal(signal.SIGKILL)
    assert trtexec.plan.read_bytes() == b""


def cut(plan: Path) -> None:
    plan.write_bytes(plan.read_bytes()[:-100])


def empty(plan: Path) -> None:
    plan.write_bytes(b"")


def change(plan: Path) -> None:
    content = bytearray(plan.read_bytes())
    content[-100] ^= 1
    plan.write_bytes(content)


@dataclass
class Backend:
    """The backend's model.py with a stand-in for what the stub process gives it."""

    module: Any
    repository: Path
    logged: list[str]

    def load(self, version: int = 1, max_batch_size: int = 4, **changed: Any) -> Any:
        config = {
            "name": "resnet50_trt",
            "max_batch_size": max_batch_size,
            "input": [{"name": "input", "data_type": "TYPE_UINT8", "dims": ["3", "8", "8"]}],
            "output": [{"name": "output", "data_type": "TYPE_FP32", "dims": ["5"]}],
        } | changed
        model = self.module.TritonPythonModel()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(self.repository),
                "model_version": str(version),
            }
        )
        return model


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    logged: list[str] = []
    monkeypatch.setenv("REHEARSAL_TENSORRT", "11.1.0")
    monkeypatch.setenv("REHEARSAL_COMPUTE_CAPABILITY", "8.6")
    (tmp_path / "1").mkdir()
    Trtexec(tmp_path, "11.1.0").built().rename(tmp_path / "1" / "model.plan")
    with program(REHEARSAL / "tensorrt_backend", logged) as module:
        yield Backend(module, tmp_path, logged)


def test_the_backend_answers_as_the_network_does(backend: Backend) -> None:
    import onnxruntime

    model = backend.load()
    random = np.random.default_rng(1)
    pixels = [random.integers(0, 256, (n, 3, 8, 8), np.uint8) for n in (1, 3)]
    responses = model.execute([{"input": Tensor("input", each)} for each in pixels])
    session = onnxruntime.InferenceSession(backend.repository / "model.onnx")
    for each, response in zip(pixels, responses, strict=True):
        (expected,) = session.run(["output"], {"input": each})
        (answered,) = response.tensors
        assert answered.value.dtype == np.float32
        np.testing.assert_allclose(answered.value, expected, rtol=0.02, atol=1)


def test_the_backend_holds_to_the_profile(backend: Backend) -> None:
    model = backend.load()
    request = {"input": Tensor("input", np.zeros((3, 3, 8, 8), np.uint8))}
    responses = model.execute([request, request])
    assert [str(response.error) for response in responses] == [
        "model expected the shape of dimension 0 to be between 1 and 4 but received 6"
    ] * 2
    with pytest.raises(Exception, match="specified max-batch 8 but TensorRT engine only supports"):
        backend.load(max_batch_size=8)
    scores = {"name": "output", "data_type": "TYPE_FP16", "dims": ["5"]}
    with pytest.raises(Exception, match="unexpected datatype TYPE_FP32 for inference output"):
        backend.load(output=[scores])


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (
            "REHEARSAL_COMPUTE_CAPABILITY",
            "9.0",
            "Error Code 6: API Usage Error (The engine plan file is generated on an incompatible "
            "device, expecting compute 9.0 got compute 8.6, please rebuild.)",
        ),
        (
            "REHEARSAL_TENSORRT",
            "11.2.1",
            "Error Code 6: API Usage Error (The engine plan file is not compatible with this "
            "version of TensorRT, expecting library version 11.2.1.0 got 11.1.0.106, "
            "please rebuild.)",
        ),
        (
            "REHEARSAL_TENSORRT",
            "10.16.1",
            "Error Code 1: Serialization (Serialization assertion stdVersionRead == "
            "kSERIALIZATION_VERSION failed.Version tag does not match. "
            "Note: Current Version: 240, Serialized Engine Version: 243)",
        ),
    ],
)
def test_the_backend_refuses_what_was_built_elsewhere(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, message: str
) -> None:
    monkeypatch.setenv(setting, value)
    plan = backend.repository / "1" / "model.plan"
    with pytest.raises(
        Exception, match="unable to load plan file to auto complete config"
    ) as refused:
        backend.load()
    assert str(refused.value).endswith(f": {plan}")
    assert backend.logged == [f"IRuntime::deserializeCudaEngine: {message}"]


@pytest.mark.parametrize("damage", [cut, empty, change])
def test_the_backend_refuses_a_damaged_plan(
    backend: Backend, damage: Callable[[Path], None]
) -> None:
    damage(backend.repository / "1" / "model.plan")
    with pytest.raises(Exception, match="unable to load plan file to auto complete config"):
        backend.load()
    assert "Error Code 1: Serialization" in backend.logged[0]
