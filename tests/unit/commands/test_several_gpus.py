"""Scores that lie on a GPU are computed with on that GPU, which another one may not reach; and what
keeps a container from its GPU is reported with its remedy.

Without a GPU: cupy is stood for by arrays that know their device, as cupy 13.6 treats them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from bundle_serving import health
from bundle_serving.process import gpu
from bundle_serving.protocol import host_copy
from bundle_serving.scores import softmax
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks.gpu import GpuStack, scores_stay, why_no_gpu
from tests.project import ROOT

GPUS = 2


class Device:
    current = 0

    def __init__(self, number: int) -> None:
        self.number, self._before = number, 0

    def use(self) -> None:
        Device.current = self.number

    def __enter__(self) -> None:
        self._before = Device.current
        self.use()

    def __exit__(self, *_: object) -> None:
        Device.current = self._before


class OnGpu(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of cupy, on a machine whose GPUs do not reach each other."""

    def __init__(self, held: NDArray[np.float32], device: Device) -> None:
        self.held, self.device = held, device

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *arrays: object) -> OnGpu:
        if Device.current != self.device.number:
            raise RuntimeError("Peer access is unavailable")
        held = [each.held if isinstance(each, OnGpu) else each for each in arrays]
        return OnGpu(getattr(ufunc, method)(*held), self.device)

    def __getattr__(self, name: str) -> Any:  # all, max, sum, astype
        return lambda *words, **named: OnGpu(getattr(self.held, name)(*words, **named), self.device)

    def __bool__(self) -> bool:
        return bool(self.held)


class Given:
    """A tensor of Triton's, on a GPU; its memory is here, as CUDA would have it there."""

    def __init__(self, held: NDArray[np.float32], number: int) -> None:
        self.held, self.number = held, number

    def is_cpu(self) -> bool:
        return False

    def __dlpack__(self) -> object:
        return self.held.__dlpack__()


# Of a model without programs of a user's own.
WHERE = {"model_repository": "nowhere", "model_version": "1"}
READ = {"answers": {"string_value": "single-label"}}


def read_config(parameters: dict[str, Any]) -> str:
    return json.dumps({"parameters": parameters, "input": [{"dims": [1000]}]})


@pytest.fixture
def postprocessing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The model as it is shipped, beside stand-ins for what the stub process and cupy give it."""
    compiled: list[tuple[int, tuple[int, ...]]] = []

    def zeros(shape: tuple[int, ...], kind: Any) -> OnGpu:
        compiled.append((Device.current, shape))
        return OnGpu(np.zeros(shape, kind), Device(Device.current))

    cupy: Any = types.ModuleType("cupy")
    cupy.__file__ = "/usr/local/lib/python3.12/dist-packages/cupy/__init__.py"
    cupy.from_dlpack = lambda given: OnGpu(given.held, Device(given.number))
    cupy.zeros, cupy.float32, cupy.compiled = zeros, np.float32, compiled
    runtime = types.SimpleNamespace(getDeviceCount=lambda: GPUS)
    cupy.cuda = types.SimpleNamespace(Device=Device, runtime=runtime)
    pb: Any = types.ModuleType("triton_python_backend_utils")
    pb.get_input_tensor_by_name = lambda request, name: request[name]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb)
    monkeypatch.delitem(sys.modules, "bundle_serving.triton", raising=False)
    monkeypatch.setattr(Device, "current", 0)
    path = ROOT / "model_repository" / "postprocessing" / "1" / "model.py"
    spec = importlib.util.spec_from_file_location("postprocessing", path)
    assert spec and spec.loader
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    yield model
    sys.modules.pop("bundle_serving.triton", None)


def test_each_gpus_scores_are_computed_with_there(postprocessing: Any) -> None:
    scores = np.random.default_rng(0).normal(0, 10, (2, 1000)).astype(np.float32)
    model = postprocessing.TritonPythonModel()
    model.initialize({**WHERE, "model_config": read_config(READ)})
    for number in (1, 0, 1):
        answered = model.probabilities({"INPUT_0": Given(scores, number)})
        assert answered.device.number == number
        assert np.array_equal(answered.held, softmax(scores))


@pytest.mark.parametrize(
    ("parameters", "compiled"),
    [
        ({}, []),
        ({"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "yes"}}, []),
        (
            {"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "no"}},
            [(gpu, (rows, 1000)) for gpu in range(GPUS) for rows in (1, 2)],
        ),
    ],
)
def test_kernels_are_compiled_at_the_start(
    postprocessing: Any, parameters: dict[str, Any], compiled: list[Any]
) -> None:
    """Those of the model's own classes: of one row cupy makes fewer dimensions."""
    args = {**WHERE, "model_config": read_config(READ | parameters)}
    postprocessing.TritonPythonModel().initialize(args)
    assert sys.modules["cupy"].compiled == compiled


def test_an_image_without_cupy_computes_on_the_cpu_and_says_so(
    postprocessing: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def copy(target: Any, source: Any, size: Any, kind: int) -> int:
        ctypes.memmove(target, source, size.value)
        return 0 if kind == host_copy.BY_THE_POINTERS else 1

    monkeypatch.setattr(host_copy, "_load", lambda: types.SimpleNamespace(cudaMemcpy=copy))
    monkeypatch.setitem(sys.modules, "cupy", None)  # as where it cannot be imported
    parameters = READ | {"FORCE_CPU_ONLY_INPUT_TENSORS": {"string_value": "no"}}
    model = postprocessing.TritonPythonModel()
    model.initialize({**WHERE, "model_config": read_config(parameters)})
    for scores in np.random.default_rng(0).normal(0, 10, (3, 2, 1000)).astype(np.float32):
        answered = model.probabilities({"INPUT_0": Given(scores, 1)})
        assert np.array_equal(answered, softmax(scores))
    said = "".join(capfd.readouterr())
    assert said.count("scores on the CPU, in spite of POSTPROCESS=gpu") == 1


def test_scores_stay_where_that_is_asked_for_and_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Settings.load({"POSTPROCESS": "gpu"}, tmp_path / ".env")
    assert scores_stay(asked) and not scores_stay(Settings.load({}, tmp_path / ".env"))
    monkeypatch.setattr("scripts.stacks.gpu.WSL", tmp_path)  # as under Windows
    assert not scores_stay(asked)


def test_a_container_that_lost_its_gpu_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--address", "127.0.0.1:9"]  # where nobody answers
    monkeypatch.setenv("PATH", str(tmp_path))
    assert health.main(asked) == 1 and "lost" not in capsys.readouterr().err
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{gpu.NVML_LOST}'\nexit 255\n")
    program.chmod(0o755)
    assert health.main(asked) == 1
    assert "the container has lost its GPU" in (errors := capsys.readouterr().err)
    assert "make down && make up" in errors and "docs/gpu.md" in errors


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ('could not select device driver "nvidia"', "nvidia-ctk runtime configure"),
        ("failed to discover GPU vendor from CDI", "nvidia-ctk runtime configure"),
        ("unresolvable CDI devices nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
        ("failed to inject CDI devices", "nvidia-ctk cdi generate"),
        (gpu.NVML_LOST, "systemctl restart docker"),
    ],
)
def test_why_no_container_sees_a_gpu_has_its_remedy(message: str, remedy: str) -> None:
    cause, advice = why_no_gpu(f"Error response from daemon: {message}")
    assert message not in cause  # but what it means
    assert remedy in advice and "FLAVOUR=cpu" in advice
    assert "something new" in why_no_gpu("something new")[0]


def test_the_image_is_asked_once_for_its_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container is started for it, and `make upgrade` wants it for each pipeline."""
    stack, compose = GpuStack(Settings(DEFAULTS)), Mock()
    compose.run.return_value = Mock(stdout="a banner\n11.1.0.5\n")
    monkeypatch.setattr(stack, "compose", compose)
    assert [stack.tensorrt, stack.tensorrt] == 2 * ["11.1.0"] and compose.run.call_count == 1
