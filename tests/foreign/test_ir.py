"""OpenVINO's own files: served as the ONNX files that they were made of, or refused with the
reason."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmark.foreign.adopted import adopt_network
from benchmark.foreign.case import Case, Truth
from benchmark.foreign.graphs import CASES, CLASSES, SIDE
from bundle_serving.openvino_engine import openvino
from scripts.artefacts.step import ADOPT
from scripts.base.errors import UserError
from scripts.recipes.layout import CPU, GPU
from scripts.repository import custom, sources
from scripts.settings.settings import DEFAULTS, Settings
from tests.foreign.expected import require_as_expected

SHORT = (
    *("a softmax of single operators", "independent labels", "one label, a sigmoid"),
    *("batch fixed at 1", "batch fixed at 1, with a class token", "channels last", "grey"),
    *("levels (uint8)", "half precision", "two outputs, one chosen", "8 bits (QDQ, signed)"),
    *("percentages", "two inputs"),
)
FROM = {"FROM": "{folder}/model.xml"}


def as_ir(case: Case) -> Case:
    def make(folder: Path) -> Truth:
        truth = case.make(folder)
        network = folder / "model.onnx"
        made = openvino.convert_model(network)
        openvino.save_model(made, network.with_suffix(".xml"), compress_to_fp16=False)
        network.unlink()
        return truth

    return replace(case, make=make, options={**case.options, **FROM})


@pytest.mark.parametrize(
    "case", [as_ir(case) for case in CASES if case.name in SHORT], ids=lambda case: case.name
)
def test_it_is_served_as_what_it_was_made_of(case: Case, tmp_path: Path) -> None:
    require_as_expected(case, tmp_path)


def test_what_ultralytics_writes_beside_it(tmp_path: Path) -> None:
    (known,) = (case for case in CASES if case.name == "metadata of Ultralytics")

    def make(folder: Path) -> Truth:
        truth = as_ir(known).make(folder)
        about = {"task": "classify", "names": dict.fromkeys(range(CLASSES), "thing")}
        (folder / "metadata.yaml").write_text(yaml.safe_dump(about | {"imgsz": [SIDE, SIDE]}))
        return truth

    require_as_expected(replace(as_ir(known), make=make), tmp_path)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    (usual,) = (case for case in CASES if case.name == "a softmax at the end")
    as_ir(usual).make(tmp_path)
    return tmp_path / "model.xml"


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("</layers>", "", "cannot be read as OpenVINO's IR"),
        ("<net ", "<html ", "cannot be read as OpenVINO's IR"),
        ('type="SoftMax"', 'type="Wavelet"', "OpenVINO cannot read model.xml"),
        ('offset="0"', 'offset="x"', "cannot be read as OpenVINO's IR"),
        ('offset="0"', 'offset="9999999"', "model.bin is too short for model.xml"),
        ("<dim>3</dim>", "<dim>4</dim>", "neither colour (3 channels) nor grey (1)"),
    ],
)
def test_a_graph_that_is_broken(network: Path, old: str, new: str, cause: str) -> None:
    text = network.read_text()
    assert old in text
    network.write_text(text.replace(old, new))
    require_refused(network, cause)


def test_its_weights_are_missing_or_cut_short(network: Path) -> None:
    weights = network.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:-1])
    require_refused(network, "model.bin is too short for model.xml")
    weights.unlink()
    require_refused(network, "keeps its weights in model.bin, which is not beside it")
    network.unlink()
    require_refused(network, "does not exist")


def require_refused(network: Path, cause: str) -> None:
    with pytest.raises(UserError, match=re.escape(cause)) as refusal:
        adopt_network({"FROM": str(network)}, network.parent)
    assert "\n" not in f"{refusal.value.cause}{refusal.value.remedy}"


def test_what_reads_onnx_alone_is_not_given_it(network: Path) -> None:
    assert sources.find_source(str(network.parent)).network == network
    recipe = custom.recipe("birds", {"ONNX": str(network)})
    settings = Settings(DEFAULTS | recipe.defaults())
    assert recipe.export(settings, CPU).step == ADOPT
    with pytest.raises(UserError, match="TensorRT reads ONNX alone"):
        recipe.export(settings, GPU)
    with pytest.raises(UserError, match="int8 quantises ONNX alone"):
        recipe.export(settings.replace_with(PRECISION="int8"), CPU)


def test_the_version_that_is_kept_is_the_one_that_was_checked(
    network: Path, tmp_path: Path
) -> None:
    """Its weights too."""
    from scripts.artefacts.manifest import why_export

    recipe, made = adopt_network({"FROM": str(network)}, tmp_path)
    spec = recipe.export(Settings(DEFAULTS | recipe.defaults()), CPU).spec
    assert why_export(made.onnx, spec) is None
    weights = made.onnx / "model.bin"
    weights.write_bytes(weights.read_bytes() + b"\0")
    assert why_export(made.onnx, spec) == "model.xml is not the file that was checked"
    weights.unlink()
    assert why_export(made.onnx, spec) == "model.bin is missing"
    other = network.with_suffix(".bin")
    other.write_bytes(other.read_bytes() + b"\0")
    assert "data" in (why_export(made.onnx, spec) or "")
