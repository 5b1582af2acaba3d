"""A network is held against its model's config before it serves anyone."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from bundle_serving import openvino_engine, work
from bundle_serving.openvino_engine import MOST_ROWS, Engine, hint
from tests.project import ROOT
from tests.python_backend import Tensor, program


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(texts(tmp_path / "model.onnx", "ids", "mask"), "fp32", threads=1)


def texts(path: Path, ids: str, mask: str) -> Path:
    """Tokens of any length and their mask -> three scores, as a network of texts has them."""
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in (ids, mask)
    ]
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Mul", [ids, mask], ["read"]),
        helper.make_node("ReduceSum", ["read", "axis"], ["sum"], keepdims=1),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["number", "number", "number"], ["scores"], axis=1),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "texts", tokens, [scores], [axis])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


class Asked(dict[str, Tensor]):
    """A request, as the backend is given it."""

    def parameters(self) -> str:
        return ""

    def inputs(self) -> list[Tensor]:
        return list(self.values())


@contextmanager
def loaded(folder: Path, *names: str) -> Iterator[Callable[..., list[Any]]]:
    """The backend with a network of texts: what it answers to requests of these shapes."""
    (folder / "1").mkdir()
    texts(folder / "1" / "model.onnx", *names)
    config = {
        "max_batch_size": 64,
        "input": [{"name": name, "data_type": "TYPE_INT64", "dims": [-1]} for name in names],
        "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [3]}],
        "parameters": {"most_numbers": {"string_value": "8192"}},
    }
    args = {"model_config": json.dumps(config), "model_repository": str(folder)}
    with program(ROOT / "serving" / "bundle_serving" / "backends" / "onnxruntime", []) as module:
        model = module.TritonPythonModel()
        model.initialize({**args, "model_name": "texts", "model_version": "1"})
        yield lambda *shapes: model.execute(
            [
                Asked({name: Tensor(name, np.ones(shape, np.int64)) for name in names})
                for shape in shapes
            ]
        )


def test_a_request_of_too_many_tokens_fails_alone(tmp_path: Path) -> None:
    """Whoever asks the network of texts itself."""
    with loaded(tmp_path, "INPUT_IDS", "ATTENTION_MASK") as ask:
        faults = [ask(shape)[0].error for shape in ((2, 8), (64, 72), (64, 8), (1, 5000))]
        assert [bool(each) for each in faults] == [False, True, False, False]
        assert faults[1].code == "INVALID_ARG" and "4608, more than the limit" in str(faults[1])
        one, other = ask((64, 72), (64, 8))
        assert one.error and not other.error


@pytest.mark.parametrize("takes_missing", [True, False])
def test_a_row_in_which_a_number_is_missing_fails_alone(
    tmp_path: Path, takes_missing: bool
) -> None:
    (tmp_path / "1").mkdir()
    described = {"engine": "onnxruntime", "missing": takes_missing}
    (tmp_path / "1" / "manifest.json").write_text(json.dumps({"onnx": described}))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in "ab"]
    graph = helper.make_graph([helper.make_node("Neg", ["a"], ["b"])], "rows", ends[:1], ends[1:])
    versions = [helper.make_opsetid("", 15)]
    network = helper.make_model(graph, opset_imports=versions, ir_version=8)
    save(network, tmp_path / "1" / "model.onnx")
    sizes = {"max_batch_size": 8, "parameters": {}}
    ends_of = {
        side: [{"name": name, "dims": ["2"]}]
        for side, name in zip(("input", "output"), "ab", strict=True)
    }
    args = {"model_config": json.dumps(sizes | ends_of), "model_repository": str(tmp_path)}
    with program(ROOT / "serving" / "bundle_serving" / "backends" / "onnxruntime", []) as module:
        model = module.TritonPythonModel()
        model.initialize({**args, "model_name": "rows", "model_version": "1"})
        rows = (np.array([row], np.float32) for row in ([1, np.nan], [1, 2]))
        one, other = model.execute([Asked(a=Tensor("a", row)) for row in rows])
    assert not other.error and bool(one.error) != takes_missing
    assert takes_missing or (
        one.error.code == "INVALID_ARG" and "a number is missing (NaN)" in str(one.error)
    )


def test_a_row_of_too_many_numbers_fails_alone(tmp_path: Path) -> None:
    """Of which the step before makes none so large."""
    with loaded(tmp_path, "INPUT_IDS", "ATTENTION_MASK") as ask:
        one, other = ask((1, 1_500_000), (1, 8192))
        assert not other.error and one.error.code == "INVALID_ARG"
        assert "has 1500000 numbers, and the limit of this network is 8192" in str(one.error)


def test_a_request_of_too_many_rows_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "NETWORK_S", 0)  # whatever a row costs
    with loaded(tmp_path, "ids", "mask") as ask:
        (first,) = ask((64, 8))  # of which nothing is known yet
        one, other = ask((33, 8), (32, 8))
        assert not first.error and not other.error
        assert one.error.code == "INVALID_ARG" and "33 rows, and the limit" in str(one.error)


@pytest.mark.parametrize(("has_bf16", "rest"), [(True, "bf16"), (False, "f32")])
def test_what_is_not_in_int8_is_computed_as_fast_as_the_processor_can(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, rest: str
) -> None:
    monkeypatch.setattr(openvino_engine, "has_bf16", lambda: has_bf16)
    assert (hint("int8"), hint("fp32"), hint("bf16")) == (rest, "f32", "bf16")


def tensor(name: str, kind: str, *dims: str) -> dict[str, Any]:
    return {"name": name, "data_type": kind, "dims": list(dims)}


def config(ids: dict[str, Any], *more: dict[str, Any], scores: str = "3") -> dict[str, Any]:
    return {"input": [ids, *more], "output": [tensor("scores", "TYPE_FP32", scores)]}


IDS, MASK = (tensor(name, "TYPE_INT64", "-1") for name in ("ids", "mask"))


def test_sizes_that_the_network_leaves_open_may_be_any(engine: Engine) -> None:
    engine.require(config(IDS, MASK))
    engine.require(config(tensor("ids", "TYPE_INT64", "8"), MASK))
    tokens = np.array([[1, 2, 3, 4]], np.int64)
    answer = engine({"ids": tokens, "mask": np.ones_like(tokens)}, ["scores"])
    assert answer["scores"].tolist() == [[10, 10, 10]]


def test_a_large_batch_is_computed_in_parts(engine: Engine) -> None:
    tokens = np.arange(2 * MOST_ROWS + 1, dtype=np.int64)[:, None]
    answer = engine({"ids": tokens, "mask": np.ones_like(tokens)}, ["scores"])
    assert answer["scores"].tolist() == [[number] * 3 for number in range(len(tokens))]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (config(tensor("ids", "TYPE_INT32", "-1"), MASK), r"'ids' is TYPE_INT64 \[-1, -1\]"),
        (config(tensor("ids", "TYPE_INT64"), MASK), r"but the pipeline's is TYPE_INT64 \[-1\]"),
        (config(IDS, MASK, scores="2"), r"'scores' is TYPE_FP32 \[-1, 3\]"),
        (config(IDS, MASK, scores="-1"), r"'scores' is TYPE_FP32 \[-1, 3\]"),
        (config(IDS, tensor("words", "TYPE_INT64", "-1")), "no input 'words', only ids, mask"),
        (config(IDS), "no input 'mask' for the network"),
    ],
)
def test_a_config_that_the_network_does_not_fit_is_refused(
    engine: Engine, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        engine.require(wrong)
