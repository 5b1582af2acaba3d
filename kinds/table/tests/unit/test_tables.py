"""Models of tables: their rows, the graph that is served, and what is asked of it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save
from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from bundle_serving import onnxruntime_engine
from bundle_serving.agreement import TABLE, Bound, compare
from kinds.table import adoption, conversions, export, rows
from kinds.table.recipe import Table
from kinds.table.rows import INPUT, OUTPUT
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.layout import CPU, GPU
from scripts.repository import sources
from scripts.repository.own_pipelines import write_models
from scripts.settings.settings import DEFAULTS, Settings

COLUMNS = ("petal", "sepal")


def csv(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("1,2\n3,4.5\n", COLUMNS, [[1, 2], [3, 4.5]]),
        ("sepal,colour,petal\n2,red,1\n\n4,blue,3\n", COLUMNS, [[1, 2], [3, 4]]),
        ("a,b\n1,2\n", (), [[1, 2]]),
        ("1,0,2\n2,1,3\n", ("0", "1"), [[1, 2]]),
        ("3,4\n1,2\n", ("0", "1"), [[3, 4], [1, 2]]),
        ("1,\nNA,nan\n", COLUMNS, [[1, np.nan], [np.nan, np.nan]]),
        ("\ufeffpetal,sepal\n1,2e3\n", COLUMNS, [[1, 2000]]),
        ('note,petal,sepal\n"red, dark",1,2\n', COLUMNS, [[1, 2]]),
        ("petal,sepal,petal\n1,2,3\n", COLUMNS, [[1, 2]]),
    ],
)
def test_rows_that_are_read(
    tmp_path: Path, text: str, columns: tuple[str, ...], expected: list[list[float]]
) -> None:
    np.testing.assert_array_equal(rows.read(csv(tmp_path, text), columns, 2), expected)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("petal,sepal,target\n1,2,iris\n3,,rose\n", COLUMNS),
        ("sepal,species,petal\n2,iris,1\n,rose,3\n", COLUMNS),
        ("a,b,flower\n1,2,iris\n3,,rose\n", ()),
        ("class;a;b\niris;1;2\nrose;3;\n", ()),
        ("petal, sepal, target\n1, 2, iris\n3, , rose\n", COLUMNS),
    ],
)
def test_labelled_rows(tmp_path: Path, text: str, columns: tuple[str, ...]) -> None:
    first, second = rows.read_labelled(csv(tmp_path, text), columns, 2).items
    assert (first.label, first.source) == ("iris", "[1.0, 2.0]")
    assert (second.label, second.source) == ("rose", "[3.0, NaN]")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("petal,sepal,a,b\n1,2,3,4\n", "does not say which column has the classes"),
        ("petal\n1\n", "does not say which column has the classes"),
        ("petal,target\n1,iris\n", "has no column sepal, but petal, target"),
        ("petal,sepal,target\n1,red,iris\n", "line 2: could not convert"),
    ],
)
def test_labelled_rows_that_are_refused(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(UserError, match=cause):
        rows.read_labelled(csv(tmp_path, text), COLUMNS, 2)


def test_each_line_of_json_has_an_order_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = ['{"petal": 1, "sepal": 2, "target": 0}', '{"target": 1, "sepal": 4, "petal": 3}']
    path.write_text("\n".join(lines))
    for columns in (COLUMNS, ()):
        items = rows.read_labelled(path, columns, 2).items
        assert [(each.label, each.source) for each in items] == [
            ("0", "[1.0, 2.0]"),
            ("1", "[3.0, 4.0]"),
        ]
    path.write_text(lines[0] + '\n{"petal": 3, "target": 1}\n')
    with pytest.raises(UserError, match="has no column sepal"):
        rows.read_labelled(path, COLUMNS, 2)


def test_a_line_of_json_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"petal": 1, "sepal": "red", "target": "iris"}\n')
    with pytest.raises(UserError, match="line 1: could not convert"):
        rows.read_labelled(path, COLUMNS, 2)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "has no rows"),
        ("petal,sepal\n", "has no rows"),
        ("petal,colour\n1,2\n", "has no column sepal"),
        ("1,2\n3\n", "line 2: 1 cells"),
        ("1,2,3\n", "line 1: 3 cells"),
        ("1,2\n-1e39,2\n", "line 2: a number beyond float32"),
        ("1,2\n1,inf\n", "line 2: a number beyond float32"),
        ("petal,sepal,colour\n1,5,2,red\n", "line 2: 4 cells"),
        ("petal,sepal\n1,red\n", "line 2: could not convert string to float: 'red'"),
    ],
)
def test_rows_that_are_none(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(UserError, match=re.escape(cause)):
        rows.read(csv(tmp_path, text), COLUMNS, 2)
    with pytest.raises(UserError, match="cannot read"):
        rows.read(tmp_path / "none.csv", COLUMNS, 2)


def test_a_word_beside_figures_is_no_header(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: could not convert string to float: '2x'"):
        rows.read(csv(tmp_path, "1,2x\n3,4\n"), (), 2)
    for header in (",b", "a,b"):
        assert rows.read(csv(tmp_path, f"{header}\n3,4\n"), (), 2).tolist() == [[3, 4]]


def tree() -> Any:
    """Column 1 below 5, or not: probabilities of two classes, after a label, as converters write
    it."""
    node = helper.make_node(
        "TreeEnsembleClassifier",
        [INPUT],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[1, 0, 0],
        nodes_modes=["BRANCH_LT", "LEAF", "LEAF"],
        nodes_values=[5.0, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        nodes_missing_value_tracks_true=[0, 0, 0],
        class_treeids=[0, 0, 0, 0],
        class_nodeids=[1, 1, 2, 2],
        class_ids=[0, 1, 0, 1],
        class_weights=[0.75, 0.25, 0.125, 0.875],
        classlabels_int64s=[0, 1],
        post_transform="NONE",
    )
    taken = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [None, 2])
    given = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2]),
    ]
    versions = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "tree", [taken], given)
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def test_the_graph_that_is_served(tmp_path: Path) -> None:
    drawn = rows.draw_rows(tree().graph, 2, 64)
    # On both sides of the threshold, and not on it.
    assert {*drawn[:, 1]} == {2.5, 7.5} and np.isnan(rows.leave_some_out(drawn)).any()
    path = tmp_path / "model.onnx"
    save(conversions.with_one_output(tree(), 2), path)
    assert not onnxruntime_engine.runs(path)
    (tmp_path / "manifest.json").write_text('{"onnx": {"engine": "onnxruntime"}}')
    assert onnxruntime_engine.runs(path)
    engine = onnxruntime_engine.load_engine(path, 1)
    given = engine.only_output({INPUT: np.array([[9, 4], [9, 6]], np.float32)})
    np.testing.assert_allclose(given, [[0.75, 0.25], [0.125, 0.875]])
    output = {"name": OUTPUT, "dims": ["2"]}
    engine.require({"input": [{"name": INPUT, "dims": ["2"]}], "output": [output]})
    with pytest.raises(ValueError, match="the network's input is"):
        engine.require({"input": [{"name": INPUT, "dims": ["3"]}], "output": [output]})


def test_values_are_compared_by_their_size() -> None:
    values = np.array([[2e6], [0.5], [-3e4]], np.float32)
    near = compare(values, values * np.float32(1.0001), TABLE)
    assert near.within(Bound(0.001)) and "3 of 3 rows" in str(near)
    assert not compare(values, values * np.float32(1.01), TABLE).within(Bound(0.001))
    assert not compare(values, values * np.nan, TABLE).within(Bound(0.001))


def test_labels_that_would_be_of_other_classes_are_refused() -> None:
    spec = export.Table(Path("m.skops"), Path("labels.txt"))
    own = ["lily", "rose"]
    for given, expected in (([], own), (own, own), (["Lilie", "Rose"], ["Lilie", "Rose"])):
        assert export.labels_for(given, own, spec) == expected
    with pytest.raises(UserError, match=r"labels\.txt has the classes .* in another order"):
        export.labels_for(["rose", "lily"], own, spec)
    with pytest.raises(UserError, match=r"labels\.txt has rose for more than one class"):
        export.labels_for(["rose", "rose"], own, spec)


def recipe(**more: Any) -> Table:
    made = adoption.make_recipe("flowers", Path("flowers.json"), {})
    return made.model_copy(update={"width": 2, "columns": COLUMNS, **more})


def test_a_recipe_of_a_table(tmp_path: Path) -> None:
    made = recipe(classes=("rose", "lily"), values=2)
    settings = Settings(DEFAULTS | made.defaults())
    export = made.export(settings, CPU)
    assert export.step.layers == ("tables",) and "--source" in export.words
    assert "--forest" in made.export(settings, GPU).words and "--forest" not in export.words
    write_models(made, tmp_path / "classes")
    write_models(recipe(), tmp_path / "values")
    (on_gpu, whole), (of_values, plain) = (
        [configs.read(tmp_path / each / f"flowers{end}" / "config.pbtxt") for end in ("_fil", "")]
        for each in ("classes", "values")
    )
    assert on_gpu.backend == "fil" and on_gpu.instance_group[0].kind == ModelInstanceGroup.KIND_GPU
    assert "threshold" in on_gpu.parameters and "threshold" not in of_values.parameters
    (step,) = whole.ensemble_scheduling.step
    assert step.model_name == "flowers_fil"
    assert made.set_engine(whole, CPU) and step.model_name == "flowers_onnx"
    assert whole.output[0].label_filename == "labels.txt" and not plain.output[0].label_filename
    made.require_asked([str(csv(tmp_path, "1,2\n"))], {})
    with pytest.raises(UserError, match="3 cells"):
        made.require_asked([str(csv(tmp_path, "1,2,3\n"))], {})


def test_where_models_of_tables_come_from(tmp_path: Path) -> None:
    for name in ("a.json", "a.ubj", "a.skops"):
        (tmp_path / name).touch()
        assert sources.find_source(str(tmp_path / name)).path == tmp_path / name
    (trees := tmp_path / "a.txt").write_text("tree\nversion=v4\n")
    assert sources.find_source(str(trees)).path == trees
    for name, cause in (
        ("a.pkl", "is a pickle, which runs code"),
        ("a.joblib", "is a pickle, which runs code"),
        ("a.tflite", "is a model of TensorFlow Lite"),
        ("a.mlmodel", "is a model of Core ML"),
    ):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=cause):
            sources.find_source(str(tmp_path / name))
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    (tmp_path / "a.keras").touch()
    for name, way in (("saved", "tf2onnx.convert --saved-model"), ("a.keras", "model.export(")):
        source = sources.find_source(str(tmp_path / name))
        assert source.other == str(tmp_path / name) and way in source.by_hand
