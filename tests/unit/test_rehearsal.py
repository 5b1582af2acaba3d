"""The rehearsal's trtexec and tensorrt backend are as strict as what they stand for."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.project import ROOT

REHEARSAL = ROOT / "tests" / "rehearsal"
BACKEND = REHEARSAL / "tensorrt_backend"

BOTH = ("10.16.1", "11.1.0")
SHAPES = ("--minShapes=input:1x3x8x8", "--optShapes=input:2x3x8x8", "--maxShapes=input:4x3x8x8")

# Gone in 11.0: in options_10_16.txt, not in options_11_1.txt.
REMOVED = (
    *("--best", "--bf16", "--fp16", "--fp8", "--int4", "--int8", "--restricted", "--weightless"),
    *("--calib=cache", "--calibProfile=0", "--layerOutputTypes=a:fp16", "--layerPrecisions=a:fp16"),
    *("--minShapesCalib=input:1x3x8x8", "--optShapesCalib=input:1x3x8x8"),
    *("--maxShapesCalib=input:1x3x8x8", "--precisionConstraints=obey"),
)
# Gone for longer, and still in many recipes.
LONG_GONE = ("--explicitBatch", "--workspace=4096", "--buildOnly", "--maxBatch=8")


def network(
    path: Path, compute: int = TensorProto.FLOAT16, cast: bool = True, batch: Any = "batch"
) -> Path:
    """uint8 -> Cast -> Conv -> GlobalAveragePool -> Flatten -> Gemm -> Cast -> fp32"""
    kind = np.float16 if compute == TensorProto.FLOAT16 else np.float32
    random = np.random.default_rng(0)
    weights = {
        "conv.weight": random.standard_normal((4, 3, 3, 3)).astype(kind),
        "conv.bias": np.zeros(4, kind),
        "fc.weight": random.standard_normal((5, 4)).astype(kind),
        "fc.bias": np.zeros(5, kind),
    }
    first = "input" if cast else "same"
    nodes = [
        helper.make_node("Cast", [first], ["pixels"], "cast", to=compute),
        helper.make_node("Conv", ["pixels", "conv.weight", "conv.bias"], ["features"], "conv"),
        helper.make_node("GlobalAveragePool", ["features"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["scores"], "fc", transB=1),
        helper.make_node("Cast", ["scores"], ["output"], "out", to=TensorProto.FLOAT),
    ]
    if not cast:
        nodes.insert(0, helper.make_node("Identity", ["input"], ["same"], "identity"))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.UINT8, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, 5])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path)
    return path


@dataclass
class Done:
    rc: int
    out: str
    err: str


@dataclass
class Trtexec:
    folder: Path
    version: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Path:
        return self.folder / "model.plan"

    @property
    def environment(self) -> dict[str, str]:
        played = {"REHEARSAL_TENSORRT": self.version, "REHEARSAL_COMPUTE_CAPABILITY": "8.6"}
        return os.environ | played | self.settings

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(REHEARSAL / "trtexec.py"), *words]

    def run(self, *words: str) -> Done:
        """In this process: each of its own would load onnx again."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            rc = importlib.import_module("trtexec").main(list(words))
        return Done(rc, out.getvalue(), err.getvalue())

    def build(self, onnx_path: Path, *words: str) -> Done:
        return self.run(
            f"--onnx={onnx_path}", f"--saveEngine={self.plan}", "--skipInference", *words
        )

    def built(self, *words: str) -> Path:
        done = self.build(network(self.folder / "model.onnx"), "--stronglyTyped", *SHAPES, *words)
        assert done.rc == 0, done.out + done.err
        return self.plan

    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = json.loads(self.plan.read_bytes().split(b"\n", 2)[1])
        return header


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REHEARSAL))


@pytest.fixture(params=BOTH)
def trtexec(request: pytest.FixtureRequest, tmp_path: Path) -> Trtexec:
    return Trtexec(tmp_path, request.param)


@pytest.fixture
def fp16(tmp_path: Path) -> Path:
    return network(tmp_path / "model.onnx")


def test_a_good_build_passes(trtexec: Trtexec) -> None:
    info = trtexec.folder / "layers.json"
    cache = trtexec.folder / "timing.cache"
    words = (
        *(f"--exportLayerInfo={info}", f"--timingCacheFile={cache}", "--memPoolSize=workspace:4G"),
        *("--profilingVerbosity=detailed", "--builderOptimizationLevel=3"),
    )
    plan = trtexec.built(*words)
    number, build = {"10.16.1": ("101601", "11"), "11.1.0": ("110100", "106")}[trtexec.version]
    done = trtexec.build(trtexec.folder / "model.onnx", "--stronglyTyped", *SHAPES, *words)
    assert f"&&&& PASSED TensorRT.trtexec [TensorRT v{number}] [b{build}] # trtexec --onnx=" in (
        done.out
    )
    assert f"TensorRT version: {trtexec.version}" in done.out
    assert "MIN=1x3x8x8 OPT=2x3x8x8 MAX=4x3x8x8" in done.out
    assert plan.read_bytes().endswith((trtexec.folder / "model.onnx").read_bytes())
    header = trtexec.header()
    assert header["tensorrt"] == f"{trtexec.version}.{build}"
    assert (header["compute_capability"], header["precision"]) == ("8.6", "fp16")
    assert header["gpu"] == "NVIDIA Rehearsal GPU"
    assert header["shapes"]["input"] == {
        "min": [1, 3, 8, 8],
        "opt": [2, 3, 8, 8],
        "max": [4, 3, 8, 8],
    }
    assert "--stronglyTyped" in header["flags"]
    assert cache.stat().st_size > 0 and "bytes of timing cache" in done.out


def test_layer_information_says_the_types_only_in_detail(trtexec: Trtexec) -> None:
    info = trtexec.folder / "layers.json"
    trtexec.built(f"--exportLayerInfo={info}")
    assert "conv" in json.loads(info.read_text())["Layers"]
    trtexec.built(f"--exportLayerInfo={info}", "--profilingVerbosity=detailed")
    written = json.loads(info.read_text())
    cast, conv, *_, last = written["Layers"]
    assert written["Bindings"] == ["input", "output"]
    said = [
        cast["Inputs"][0]["Format/Datatype"],
        conv["Outputs"][0]["Format/Datatype"],
        last["Outputs"][0]["Format/Datatype"],
    ]
    if trtexec.version == "10.16.1":
        assert (conv["Name"], conv["LayerType"]) == ("conv", "CaskConvolution")
        assert conv["Weights"] == {"Type": "Half", "Count": 108}
        assert said == [
            "Row major linear UInt8 format",
            "Row major linear FP16 format",
            "Row major linear FP32",
        ]
    else:
        assert (conv["Name"], conv["LayerType"]) == ("conv_myl0_1", "conv")
        assert [each["Format/Datatype"] for each in conv["Constants"]] == ["Half", "Half"]
        assert said == ["UInt8", "Half", "Float"]


@pytest.mark.parametrize("word", REMOVED)
def test_what_11_removed_fails_on_11(tmp_path: Path, fp16: Path, word: str) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0")
    done = trtexec.build(fp16, "--stronglyTyped", *SHAPES, word)
    name, _, value = word.partition("=")
    assert done.rc == 1 and not trtexec.plan.exists()
    assert f"[E] Unknown option: {name} {value}" in done.err
    assert "=== Model Options ===" in done.out and "&&&& PASSED" not in done.out
    assert name not in done.out.split("=== Build Options ===")[1].split()


def test_11_has_no_last_line_for_a_bad_command_line(tmp_path: Path, fp16: Path) -> None:
    assert "&&&& FAILED" not in Trtexec(tmp_path, "11.1.0").build(fp16, "--fp16").out
    assert "&&&& FAILED" in Trtexec(tmp_path, "10.16.1").build(fp16, "--explicitBatch").out


@pytest.mark.parametrize("word", LONG_GONE)
def test_what_was_removed_before_fails_on_both(trtexec: Trtexec, fp16: Path, word: str) -> None:
    done = trtexec.build(fp16, *SHAPES, word)
    assert done.rc == 1 and "[E] Unknown option: " + word.replace("=", " ") in done.err


def test_weak_typing_is_still_there_in_10(tmp_path: Path) -> None:
    trtexec = Trtexec(tmp_path, "10.16.1")
    fp32 = network(tmp_path / "fp32.onnx", TensorProto.FLOAT)
    assert trtexec.build(fp32, "--fp16", *SHAPES).rc == 0
    assert trtexec.header()["precision"] == "fp16"
    assert trtexec.build(fp32, *SHAPES).rc == 0
    assert trtexec.header()["precision"] == "fp32"
    both = trtexec.build(network(tmp_path / "half.onnx"), "--fp16", "--stronglyTyped", *SHAPES)
    assert both.rc == 0 and "Disabling BuilderFlag::kFP16." in both.err
    done = trtexec.build(fp32, "--best", "--stronglyTyped", *SHAPES)
    assert done.rc == 1 and "--best and --stronglyTyped cannot be both set." in done.err


def test_fp32_is_refused_under_strong_typing(trtexec: Trtexec) -> None:
    fp32 = network(trtexec.folder / "fp32.onnx", TensorProto.FLOAT)
    done = trtexec.build(fp32, "--stronglyTyped", *SHAPES)
    assert done.rc == 1 and not trtexec.plan.exists()
    assert "Conv conv (Float, Float)" in done.err and "the rehearsal's own rule" in done.err
    assert "&&&& FAILED" in done.out
    trtexec.settings["REHEARSAL_ACCEPT_FP32"] = "1"
    assert trtexec.build(fp32, "--stronglyTyped", *SHAPES).rc == 0
    assert trtexec.header()["precision"] == "fp32"


def test_11_is_strongly_typed_without_being_told(tmp_path: Path) -> None:
    fp32 = network(tmp_path / "fp32.onnx", TensorProto.FLOAT)
    assert "own rule" in Trtexec(tmp_path, "11.1.0").build(fp32, *SHAPES).err


PARSE = "failed to parse minShapes/optShapes/maxShapes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minShapes=input:1xthreex8x8"], f"stoi conversion failure: {PARSE}"),
        (["--optShapes=input:"], f"stoi conversion failure: {PARSE}"),
        (["--optShapes=input=1x3x8x8"], f"stoi conversion failure: {PARSE}"),
        (["--optShapes=1x3x8x8"], 'input tensor with name "1x3x8x8"'),
        (["--optShapes=inputs:1x3x8x8"], 'Cannot find input tensor with name "inputs"'),
        (["--optShapes=input:1x3x8"], "number of dimensions is 4 but profile 0 has 3"),
        (["--optShapes=input:1x3x9x9"], "axis 2, profile has min=9, opt=9, max=9 but tensor has 8"),
        (["--optShapes=input:-1x3x8x8"], "Error in set dimensions to profile MIN"),
        ([SHAPES[0], SHAPES[1], "--maxShapes=input:1x3x8x8"], "set dimensions to profile MAX"),
        (["--minShapes=input:3x3x8x8", *SHAPES[1:]], "set dimensions to profile OPT"),
        ([SHAPES[0], *SHAPES], "Multiple --minShapes/--optShapes/--maxShapes without --profile"),
        (["--builderOptimizationLevel="], "stoi"),
        (["--builderOptimizationLevel"], "stoi"),
        (["--avgTiming=99999999999"], "Uncaught exception detected: stoi"),
        (["--memPoolSize=workspace:4X"], "invalid unit specifier 'X'"),
        (["--memPoolSize=work:4"], "Unknown memory pool: work"),
        (["--profilingVerbosity=loud"], "Unknown profilingVerbosity: loud"),
        (["--sparsity="], "Unknown sparsity mode: "),
        (["--stronglyTyped", "--stronglyTyped"], "Unknown option: --stronglyTyped"),
        (["--loadEngine=other.plan"], "Incompatible load and save engine options selected"),
        (["model.onnx"], "Unknown option: model.onnx"),
        (["--versionCompatible"], "--versionCompatible is real but not played here"),
    ],
)
def test_bad_words_are_refused(
    trtexec: Trtexec, fp16: Path, words: list[str], message: str
) -> None:
    done = trtexec.build(fp16, *words)
    assert done.rc == 1 and message in done.err
    assert not trtexec.plan.exists() or trtexec.plan.stat().st_size == 0


def test_left_out_shapes_become_ones(trtexec: Trtexec, fp16: Path) -> None:
    done = trtexec.build(fp16, "--stronglyTyped")
    assert done.rc == 0 and "Automatically overriding shape to: 1x3x8x8" in done.err
    assert trtexec.header()["shapes"]["input"]["max"] == [1, 3, 8, 8]
    done = trtexec.build(fp16, "--stronglyTyped", SHAPES[2])
    assert "maxShapes is being broadcasted to minShapes for tensor input" in done.err
    assert trtexec.header()["shapes"]["input"]["min"] == [4, 3, 8, 8]


def test_a_static_network_takes_no_shapes(trtexec: Trtexec) -> None:
    static = network(trtexec.folder / "static.onnx", batch=1)
    assert "Static model does not take explicit shapes" in trtexec.build(static, *SHAPES).err
    assert trtexec.build(static).rc == 0


def test_uint8_must_be_cast_at_once(trtexec: Trtexec) -> None:
    uncast = network(trtexec.folder / "uncast.onnx", cast=False)
    done = trtexec.build(uncast, "--stronglyTyped", *SHAPES)
    assert done.rc == 1 and "must feed a Cast directly" in done.err


def test_what_is_no_network_is_refused(trtexec: Trtexec, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.onnx"
    done = trtexec.build(nothing, *SHAPES)
    assert done.rc == 1 and f"Could not open file {nothing}" in done.err
    nothing.write_bytes(b"not a network")
    done = trtexec.build(nothing, *SHAPES)
    assert done.rc == 1 and f"Failed to parse ONNX model from file: {nothing}!" in done.err
    assert "Engine set up failed" in done.err and not trtexec.plan.exists()
    assert "Model missing" in trtexec.run("--stronglyTyped").err


def test_a_plan_that_cannot_be_written_is_noticed_late(trtexec: Trtexec, fp16: Path) -> None:
    words = (f"--onnx={fp16}", "--stronglyTyped", "--skipInference", *SHAPES)
    done = trtexec.run(*words, f"--saveEngine={trtexec.folder}/no/such/folder/model.plan")
    assert done.rc == 1 and "Failed to open engine file for reading" in done.err
    assert "Engine generation completed" in done.out
    done = trtexec.run(*words, f"--saveEngine={trtexec.folder}")
    assert done.rc == 1 and "Saving engine to file failed." in done.err


def test_a_build_that_fails_or_is_killed_leaves_an_empty_plan(trtexec: Trtexec, fp16: Path) -> None:
    trtexec.plan.write_bytes(b"the plan from before")
    assert trtexec.build(fp16, "--optShapes=input:1x3x9x9").rc == 1
    assert trtexec.plan.read_bytes() == b""
    trtexec.plan.write_bytes(b"the plan from before")
    trtexec.settings["REHEARSAL_SECONDS"] = "60"
    words = (f"--onnx={fp16}", f"--saveEngine={trtexec.plan}", "--stronglyTyped", *SHAPES)
    with subprocess.Popen(
        trtexec.command(*words), env=trtexec.environment, stdout=subprocess.PIPE, text=True
    ) as build:
        assert build.stdout is not None
        assert any("of the build left" in line for line in build.stdout)
        build.send_signal(signal.SIGKILL)
    assert trtexec.plan.read_bytes() == b""


def test_the_version_of_a_plan(trtexec: Trtexec) -> None:
    plan = trtexec.built()
    words = (f"--loadEngine={plan}", "--getPlanVersionOnly")
    done = trtexec.run(*words)
    build = {"10.16.1": 11, "11.1.0": 106}[trtexec.version]
    assert done.rc == 0
    assert f"Plan was created with TensorRT version {trtexec.version}.{build}" in done.out
    other = Trtexec(trtexec.folder, next(each for each in BOTH if each != trtexec.version))
    assert f"version {trtexec.version}.{build}" in other.run(*words).out
    plan.write_bytes(b"x" + plan.read_bytes())
    done = trtexec.run(*words)
    assert done.rc == 1 and "Failed to verify a plan tag." in done.err
    assert "Failed to get plan file version." in done.err
    plan.write_bytes(b"")
    assert "Failed to read plan file" in trtexec.run(*words).err
    plan.unlink()
    assert f"Error opening engine file: {plan}" in trtexec.run(*words).err


def cut(plan: Path) -> None:
    plan.write_bytes(plan.read_bytes()[:-100])


def empty(plan: Path) -> None:
    plan.write_bytes(b"")


def change(plan: Path) -> None:
    content = bytearray(plan.read_bytes())
    content[-100] ^= 1
    plan.write_bytes(content)


def test_a_plan_of_another_machine_does_not_load(trtexec: Trtexec) -> None:
    words = (f"--loadEngine={trtexec.built()}",)
    assert trtexec.run(*words).rc == 0
    trtexec.settings["REHEARSAL_COMPUTE_CAPABILITY"] = "9.0"
    done = trtexec.run(*words)
    assert done.rc == 1 and "expecting compute 9.0 got compute 8.6, please rebuild." in done.err
    assert "[E] Error[6]: IRuntime::deserializeCudaEngine: Error Code 6: API Usage" in done.err
    cut(trtexec.plan)
    done = trtexec.run(*words)
    assert done.rc == 1 and "does not match archive size" in done.err


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


class Tensor:
    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def as_numpy(self) -> Any:
        return self.value


class TritonError(Exception):
    INVALID_ARG, INTERNAL = "INVALID_ARG", "INTERNAL"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def stub(logged: list[str]) -> types.ModuleType:
    """triton_python_backend_utils as far as the backend goes."""
    pb: Any = types.ModuleType("triton_python_backend_utils")
    pb.Tensor, pb.TritonError = Tensor, TritonError
    pb.TritonModelException = type("TritonModelException", (Exception,), {})
    pb.Logger = types.SimpleNamespace(log_error=logged.append)
    pb.get_input_tensor_by_name = lambda request, name: request[name]
    pb.InferenceResponse = lambda tensors=(), error=None: types.SimpleNamespace(
        tensors=tensors, error=error
    )
    return pb


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    logged: list[str] = []
    for name in ("bundle_serving.triton", "rehearsal_plan", "model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stub(logged))
    monkeypatch.syspath_prepend(str(BACKEND))
    monkeypatch.setenv("REHEARSAL_TENSORRT", "11.1.0")
    monkeypatch.setenv("REHEARSAL_COMPUTE_CAPABILITY", "8.6")
    (tmp_path / "1").mkdir()
    Trtexec(tmp_path, "11.1.0").built().rename(tmp_path / "1" / "model.plan")
    yield Backend(importlib.import_module("model"), tmp_path, logged)
    for name in ("bundle_serving.triton", "rehearsal_plan", "model"):
        sys.modules.pop(name, None)


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
    assert responses[0].error.code == TritonError.INTERNAL
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
    with pytest.raises(Exception, match="unable to load plan file to auto complete config") as said:
        backend.load()
    assert str(said.value).endswith(f": {plan}")
    assert backend.logged == [f"IRuntime::deserializeCudaEngine: {message}"]
    monkeypatch.setenv("REHEARSAL_AUTO_COMPLETE", "0")
    with pytest.raises(Exception, match="unable to create TensorRT engine") as said:
        backend.load()
    assert message in str(said.value)


@pytest.mark.parametrize("damage", [cut, empty, change])
def test_the_backend_refuses_a_damaged_plan(
    backend: Backend, damage: Callable[[Path], None]
) -> None:
    damage(backend.repository / "1" / "model.plan")
    with pytest.raises(Exception, match="unable to load plan file to auto complete config"):
        backend.load()
    assert "Error Code 1: Serialization" in backend.logged[0]


def test_the_backend_refuses_a_plan_that_is_not_there(backend: Backend) -> None:
    with pytest.raises(Exception, match="unable to load plan file"):
        backend.load(version=2)


def test_it_is_a_program_that_can_be_linked_to(tmp_path: Path) -> None:
    trtexec = Trtexec(tmp_path, "11.1.0", {"REHEARSAL_SECONDS": "1"})
    (tmp_path / "trtexec").symlink_to(REHEARSAL / "trtexec.py")
    words = (f"--onnx={network(tmp_path / 'model.onnx')}", f"--saveEngine={trtexec.plan}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "trtexec"), *words, *SHAPES],
        env=trtexec.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began >= 1
    assert "rehearsal: no inference is run" in done.stdout
