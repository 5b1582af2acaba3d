"""Somebody's own network, from an ONNX file to a served answer, and to its next version."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import yaml

from benchmark.foreign import graphs
from benchmark.foreign.case import same
from bundle_client import Client
from bundle_serving.openvino_engine import openvino
from bundle_serving.pictures import Transform, to_pixels
from tests.project import Project, error_lines, picture

LABELS = ["robin", "wren", "crow"]


def export(path: Path, seed: int) -> Path:
    """A network of three birds, as somebody's own code makes it."""
    import torch

    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 8, stride=8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
        torch.nn.Softmax(1),
    ).eval()
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 64, 64),),
        path,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    return path


@pytest.fixture
def own(served: Project, tmp_path: Path) -> Iterator[Project]:
    """The server that is up, with settings that say nothing of a network."""
    (tmp_path / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    settings = {
        name: served.settings[name] for name in served.settings.keys() - {"ARCH", "WEIGHTS"}
    }
    project = replace(served, settings=settings)
    yield project
    if files_of(project):
        assert "removed: birds" in project.made("remove-model", NAME="birds")
    assert files_of(project) == []
    assert "yours: none" in project.make("remove-model", NAME="birds").stderr


def files_of(project: Project) -> list[Path]:
    below = [project.path / folder for folder in ("own/model_repository", "build/live")]
    recipe = project.path / "own" / "recipes" / "birds.yaml"
    kept = project.path / "build" / "versions" / "birds"
    there = [path for folder in below for path in folder.glob("birds*")]
    return there + [path for path in (recipe, kept) if path.exists()]


def answered(project: Project, network: Path) -> None:
    """As the original does, in ONNX Runtime."""
    import onnxruntime

    file = picture()
    pixels = to_pixels(file, Transform(resize=73, crop=64)).astype(np.float32) / 255
    mean, std = (
        np.array(values, np.float32).reshape(3, 1, 1)
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    (expected,) = session.run(None, {name: ((pixels - mean) / std)[None]})[0]
    with Client(project.http, model="birds") as client:
        found = client.classify(file, top=3).labels
    for label in found:
        assert label.label == LABELS[label.index]
        assert np.isclose(label.probability, expected[label.index], atol=0.01)  # bfloat16


def test_from_an_onnx_file_to_an_answer_and_to_the_next(own: Project, tmp_path: Path) -> None:
    first, second = (export(tmp_path / f"birds{seed}.onnx", seed) for seed in (0, 1))
    labels = str(tmp_path / "birds.txt")
    before = own.made("history")
    output = own.made("add-model", NAME="birds", ONNX=str(first), LABELS=labels)
    assert "birds, serving birds0.onnx" in output and any(label in output for label in LABELS)
    answered(own, first)
    assert "birds already exists" in own.make("add-model", NAME="birds", ARCH="resnet18").stderr

    output = own.made("publish", MODEL="birds", WEIGHTS=str(second))
    assert "next: make rollout MODEL=birds" in output
    output = own.made("rollout", MODEL="birds", WATCH_SECONDS="1", MAX_P99_RATIO="20", ANYWAY="1")
    assert "birds version 2 is live; 0 of" in output
    answered(own, second)
    second_kept = second.rename(tmp_path / "kept.onnx")  # nothing is asked of it again
    assert "birds version 2" in own.made("up", MODEL="birds")
    assert any(
        label in own.made("classify", MODEL="birds", IMG="build/mug.jpg") for label in LABELS
    )
    assert "version 2 live (rollout)" in own.made("history", MODEL="birds")
    assert own.made("history") == before
    switched(own)
    answered(own, second_kept)


SWITCHES = {
    "instance_group": [
        {
            "kind": "KIND_AUTO",
            "count": 3,
            "rate_limiter": {"resources": [{"name": "memory", "count": 1}], "priority": 2},
        }
    ],
    "dynamic_batching": {
        "max_queue_delay_microseconds": 100,
        "default_queue_policy": {"timeout_action": "DELAY", "max_queue_size": 7},
    },
    "model_warmup": [
        {
            "name": "noise",
            "batch_size": 2,
            "count": 3,
            "inputs": {
                "input": {"data_type": "TYPE_UINT8", "dims": [3, 64, 64], "random_data": True}
            },
        }
    ],
}


def switched(own: Project) -> None:
    """Triton's own, by what the server says of itself; what it does not know changes nothing."""
    network = "birds_trt" if own.settings["FLAVOUR"] == "gpu" else "birds_onnx"
    path = own.path / "own" / "recipes" / "birds.yaml"
    recipe = yaml.safe_load(path.read_text())
    for unknown in ("warm_up: []", "instance_group: [number: 3]"):
        switches = {network: yaml.safe_load(unknown)}
        path.write_text(yaml.safe_dump(recipe | {"triton": switches}))
        (line,) = error_lines(own.make("up", MODEL="birds").stderr)
        assert f"triton: {network}" in line
    path.write_text(yaml.safe_dump(recipe | {"triton": {network: SWITCHES}}))
    own.made("up", MODEL="birds")
    if own.settings["FLAVOUR"] == "gpu":  # where the rehearsal copies configs as it starts
        own.made("down")
        own.made("up", MODEL="birds")
    with tritonclient.grpc.InferenceServerClient(own.grpc) as client:
        found = client.get_model_config(network).config
    (group,) = found.instance_group
    # Triton has decided by now what KIND_AUTO means here.
    assert group.count == 3 and group.rate_limiter.priority == 2
    batching = found.dynamic_batching
    assert batching.max_queue_delay_microseconds == 0  # several instances would starve
    assert batching.default_queue_policy.max_queue_size == 7
    assert batching.priority_levels == 2  # as before
    assert found.model_warmup[0].inputs["input"].random_data


def test_independent_labels_one_picture_at_a_time(own: Project, tmp_path: Path) -> None:
    """A network that answers any number of labels, in a form that nothing here has."""
    path = tmp_path / "model.onnx"
    dims, ends = (1, graphs.SIDE, graphs.SIDE, 3), [graphs.SIGMOID]
    made = graphs.build_graph(dims, answer=(1, graphs.CLASSES), body=graphs.with_a_token, ends=ends)
    onnx.save(made, path)
    (tmp_path / "noise.png").write_bytes(file := picture(kind="PNG"))
    expected = graphs.right(tmp_path, graphs.Wants(last=True), same)(file)
    best = f"class {expected.argmax()}"
    options = {"NAME": "birds", "ONNX": str(path), "OUTPUT": "multi-label"}
    wrong = own.make("add-model", **options, SAMPLE=f"{tmp_path}/noise.png=robin")
    (line,) = error_lines(wrong.stderr + wrong.stdout)
    assert f"noise.png is {best} (" in line and "not robin" in line and files_of(own) == []
    done = own.make("add-model", **options, SAMPLE=f"{tmp_path}/noise.png={best}")
    assert done.returncode == 0, done.stderr
    assert "answers as model.onnx itself" in done.stdout and best in done.stdout
    with Client(own.http, model="birds") as client:
        found = client.classify(file, top=graphs.CLASSES).labels
    for label in found:
        assert np.isclose(label.probability, expected[label.index], atol=0.01)
    own.made("remove-model", NAME="birds")


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local", "cpu"], indirect=True)  # TensorRT reads ONNX alone
def test_an_ir_of_openvino_and_then_an_onnx_file(own: Project, tmp_path: Path) -> None:
    """Versions of one pipeline, in the form that each came in."""
    first, second = (export(tmp_path / f"birds{seed}.onnx", seed) for seed in (0, 1))
    openvino.save_model(openvino.convert_model(first), tmp_path / "birds.xml")
    labels = str(tmp_path / "birds.txt")
    weights = (tmp_path / "birds.bin").rename(tmp_path / "kept.bin")
    options = {"NAME": "birds", "FROM": str(tmp_path / "birds.xml"), "LABELS": labels}
    (line,) = error_lines(own.make("add-model", **options).stderr)
    assert "birds.bin, which is not beside it" in line and files_of(own) == []
    weights.rename(tmp_path / "birds.bin")
    output = own.made("add-model", **options)
    assert "birds, serving birds.xml" in output and "answers as birds.xml itself" in output
    answered(own, first)
    own.made("publish", MODEL="birds", WEIGHTS=str(second))
    output = own.made("rollout", MODEL="birds", WATCH_SECONDS="1", MAX_P99_RATIO="20", ANYWAY="1")
    assert "birds version 2 is live; 0 of" in output
    answered(own, second)
    own.made("rollback", MODEL="birds", WATCH_SECONDS="1", MAX_P99_RATIO="20")
    answered(own, first)


@pytest.mark.rare
def test_a_network_of_timm_with_weights_of_ones_own(own: Project, tmp_path: Path) -> None:
    """Which no setting of its pipeline names: they are in the file that is made of both."""
    from benchmark.foreign import libraries  # which loads PyTorch

    asked = "test_resnet", "timm, by name"
    (case,) = (each for each in libraries.CASES if (each.name, each.origin) == asked)
    truth, file = case.make(tmp_path), picture()
    own.made(
        "add-model", NAME="birds", PRECISION="fp32", DECODE="full", **case.make_settings(tmp_path)
    )
    with Client(own.http, model="birds") as client:
        (found,) = client.classify(file, top=1).labels
    expected = truth(file)
    assert found.index == expected.argmax()
    assert np.isclose(found.probability, expected.max(), atol=0.01)
    whole = {"FROM": str(export(tmp_path / "birds.onnx", 0)), "WEIGHTS": "random"}
    done = own.make("add-model", NAME="wrens", **whole)
    (line,) = error_lines(done.stderr)
    assert done.returncode and "is already a complete network" in line


def test_what_cannot_be_served_leaves_nothing(own: Project, tmp_path: Path) -> None:
    network = onnx.load(export(tmp_path / "birds.onnx", 0))
    network.graph.node[0].op_type, network.graph.node[0].domain = "Wavelet", "acme"
    network.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    onnx.save(network, tmp_path / "odd.onnx")
    done = own.make("add-model", NAME="birds", ONNX=str(tmp_path / "odd.onnx"))
    (line,) = error_lines(done.stderr + done.stdout)
    assert done.returncode and "acme:Wavelet" in line and files_of(own) == []
