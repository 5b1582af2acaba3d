"""The flow's own rules: what makes an artefact fit, and what is laid into the repository."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from bundle_serving import step_reports
from bundle_serving.agreement import Bound, compare
from bundle_serving.pictures import Transform
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.artefacts import samples
from scripts.artefacts.gpus import Gpu
from scripts.artefacts.manifest import Manifest, Torchvision, differences, why_export
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import CPU, GPU, Decoding, Engine, Layout, Share, precision_of
from scripts.repository import model_folders
from scripts.server import engines
from scripts.settings.settings import Settings
from scripts.steps import engine, gate, plan, quantise
from scripts.steps.engine import Check
from tests.project import picture


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    """As export leaves it, with a file that only claims to be a network."""
    folder = tmp_path / "onnx"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"network")
    (folder / "labels.txt").write_text("cat\ndog: big\n")
    manifest = Manifest(
        identity=Torchvision("resnet18", "random").identity(),
        untrained=True,
        transform={"resize": 342, "crop": 299, "interpolation": "bilinear"},
        onnx={"sha256": files.sha256(folder / "model.onnx"), "classes": 2},
        check={},
    )
    (folder / "manifest.json").write_text(manifest.dump())
    return folder


def test_what_fits_is_left_alone(artefact: Path) -> None:
    assert why_export(artefact, Torchvision("resnet18", "random")) is None


def test_what_changed_is_named(artefact: Path, tmp_path: Path) -> None:
    assert why_export(artefact, Torchvision("resnet50", "random")) == "arch: resnet18 -> resnet50"
    weights = tmp_path / "mine.pth"
    weights.write_bytes(b"weights")
    assert "weights.source: random -> mine.pth" in str(
        why_export(artefact, Torchvision("resnet18", str(weights)))
    )
    (artefact / "model.onnx").write_bytes(b"netw")
    assert "not the file" in str(why_export(artefact, Torchvision("resnet18", "random")))
    (artefact / "model.onnx").unlink()
    assert "missing" in str(why_export(artefact, Torchvision("resnet18", "random")))
    (artefact / "manifest.json").write_text("{")
    assert "nothing made" in str(why_export(artefact, Torchvision("resnet18", "random")))


def test_other_weights_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    weights = tmp_path / "mine.pth"
    weights.write_bytes(b"one")
    first = Torchvision("resnet18", str(weights)).identity()
    weights.write_bytes(b"two")
    assert Torchvision("resnet18", str(weights)).identity() != first


def test_weights_that_are_gone_are_wanted_as_before(artefact: Path, tmp_path: Path) -> None:
    weights = tmp_path / "mine.pth"
    weights.write_bytes(b"mine")
    wanted = Torchvision("resnet18", str(weights))
    manifest = json.loads((artefact / "manifest.json").read_text())
    manifest["identity"] = wanted.identity()
    (artefact / "manifest.json").write_text(json.dumps(manifest))
    weights.unlink()
    assert why_export(artefact, wanted, as_before=True) is None
    other = Torchvision("resnet50", str(weights))
    assert why_export(artefact, other, as_before=True) == "arch: resnet18 -> resnet50"
    for named_now in (wanted, Torchvision("resnet18", str(tmp_path / "other.pth"))):
        with pytest.raises(UserError, match="no weights file"):
            why_export(artefact, named_now)


def test_a_missing_weights_file_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="no weights file"):
        Torchvision("resnet18", "nowhere.pth").identity()


def test_the_engine_is_proved_again_when_the_network_changes(
    artefact: Path, tmp_path: Path
) -> None:
    check, out = Check(artefact, "fp32"), tmp_path / "engine"
    assert not check.fits(out)
    files.write(out / "engine.json", json.dumps({"identity": check.identity()}))
    assert check.fits(out)
    assert not Check(artefact, "auto").fits(out)
    manifest = json.loads((artefact / "manifest.json").read_text())
    manifest["onnx"]["sha256"] = "another"
    (artefact / "manifest.json").write_text(json.dumps(manifest))
    assert not check.fits(out)


@pytest.fixture
def made(artefact: Path) -> Workspace:
    """The folders of the steps, as they are before a version is made of them."""
    workspace = Workspace(artefact.parent)
    files.write(workspace.engine / "engine.json", '{"precision": "bf16"}')
    files.write(workspace.plan / "model.plan", "a plan")
    files.write(workspace.plan / "manifest.json", "{}")
    return workspace


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "live"


def layout(engine: Engine = CPU, step: str = "python") -> Layout:
    return Layout(engine, Decoding(step), Share(3, 2), Share(4, 1))


def laid_out(made: Workspace, repository: Path) -> dict[Path, str]:
    model_folders.lay_out(pipelines.main(), made, layout(), repository)
    return {path: files.sha256(path) for path in sorted(repository.rglob("*")) if path.is_file()}


def test_the_repository_is_laid_out_for_this_network_and_machine(
    made: Workspace, repository: Path
) -> None:
    there = {str(path.relative_to(repository)) for path in laid_out(made, repository)}
    of_the_project = {
        f"{name}/{path.relative_to(folder)}"
        for name, folder in folders.model_folders().items()
        for path in folder.rglob("*")
    }
    assert there - of_the_project == {
        f"{PIPELINE}/configs/cpu.pbtxt",
        f"{PIPELINE}/labels.txt",
        "preprocessing/1/transform.json",
        "preprocessing/configs/cpu.pbtxt",
        "resnet50_onnx/1/engine.json",
        "resnet50_onnx/1/manifest.json",
        "resnet50_onnx/1/model.onnx",
        "postprocessing/configs/cpu.pbtxt",
        "resnet50_onnx/configs/cpu.pbtxt",
        "resnet50_onnx/labels.txt",
    }
    network = (repository / "resnet50_onnx" / "configs" / "cpu.pbtxt").read_text()
    assert network.count("dims: 299") == 4  # of the input, and of its warmup
    assert "count: 4" in network
    preprocessing = (repository / "preprocessing" / "configs" / "cpu.pbtxt").read_text()
    assert "count: 3" in preprocessing and 'string_value: "2"' in preprocessing
    labels, of_the_network = (
        (repository / model / "labels.txt").read_text() for model in (PIPELINE, "resnet50_onnx")
    )
    assert labels == of_the_network == "cat (untrained weights)\ndog: big (untrained weights)\n"


@pytest.mark.parametrize(
    ("step", "first"), [("python", "preprocessing"), ("dali", "preprocessing_dali")]
)
def test_on_a_gpu_the_ensemble_begins_as_wished(
    made: Workspace, repository: Path, step: str, first: str
) -> None:
    model_folders.lay_out(pipelines.main(), made, layout(GPU, step), repository)
    ensemble = (repository / PIPELINE / "configs" / "gpu.pbtxt").read_text()
    assert f'"{first}"' in ensemble
    laid_out = (repository / first / "configs" / "gpu.pbtxt").read_text()
    assert laid_out.count("dims: 299") == 2
    assert json.loads((repository / first / "1" / "transform.json").read_text())["crop"] == 299
    for model in {"preprocessing", "preprocessing_dali"} - {first}:
        assert not (repository / model / "configs" / "gpu.pbtxt").exists()


@pytest.mark.parametrize(("stay", "value"), [(False, "yes"), (True, "no")])
def test_scores_stay_on_the_gpu_where_that_is_asked_for(
    made: Workspace, repository: Path, stay: bool, value: str
) -> None:
    model_folders.lay_out(
        pipelines.main(), made, replace(layout(GPU), scores_stay=stay), repository
    )
    last = (repository / "postprocessing" / "configs" / "gpu.pbtxt").read_text()
    assert "FORCE_CPU_ONLY_INPUT_TENSORS" in last and f'string_value: "{value}"' in last
    network = (repository / "resnet50_trt" / "configs" / "gpu.pbtxt").read_text()
    assert "count: 4" in network  # Triton counts them for each GPU


def test_laying_out_twice_changes_nothing(made: Workspace, repository: Path) -> None:
    assert laid_out(made, repository) == laid_out(made, repository)


def test_one_step_is_laid_out_beside_the_three(made: Workspace, repository: Path) -> None:
    three = laid_out(made, repository)
    one = replace(layout(), one_step=True)
    model_folders.lay_out(pipelines.main(), made, one, repository)
    folder = repository / "resnet50_onnx"
    assert {path.name for path in (folder / "1").iterdir()} == {
        *("engine.json", "manifest.json", "model.onnx", "model.py", "transform.json")
    }
    network = model_folders.config_in_use(repository, "resnet50_onnx", CPU)
    assert [list(each.dims) for each in network.input] == [[3, 299, 299], [-1]]
    assert [list(each.dims) for each in network.output] == [[2], [2]]
    assert list(network.model_warmup[0].inputs["input"].dims) == [3, 299, 299]
    threads = [network.parameters[each].string_value for each in ("threads", "decoding_threads")]
    assert (network.instance_group[0].count, threads) == (4, ["1", "2"])
    ensemble = model_folders.config_in_use(repository, PIPELINE, CPU)
    assert [step.model_name for step in ensemble.ensemble_scheduling.step] == ["resnet50_onnx"]
    assert list(ensemble.output[0].dims) == [2]
    model_folders.furnish(pipelines.others()[0], repository)
    assert model_folders.config_in_use(repository, PIPELINE, CPU) == ensemble
    shutil.rmtree(folder / "1")
    assert laid_out(made, repository) == three


def test_a_half_laid_out_network_is_mended(made: Workspace, repository: Path) -> None:
    whole = laid_out(made, repository)
    (repository / "resnet50_onnx" / "1" / "model.onnx").unlink()
    assert laid_out(made, repository) == whole


def test_eight_bits_are_served_where_they_were_proved(made: Workspace) -> None:
    files.write(made.engine / "engine.json", '{"precision": "int8"}')
    network = model_folders.contents(pipelines.main(), made, layout())["resnet50_onnx"]
    assert network["model.onnx"] == made.int8 / "model.onnx"
    assert network["engine.json"] == made.engine / "engine.json"


def test_a_plan_of_another_tensorrt_than_the_servers_is_refused(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built in another image than it is loaded in."""
    monkeypatch.setattr(engines, "CACHE", tmp_path / "cache")
    gpu = Gpu("0", "NVIDIA L4", "8.9", "610.43", "24576 MiB")
    settings = Settings.load({}, Path("no .env"))

    def run_step(step: Step, *words: str | Path) -> None:
        profile = pipelines.main().recipe.shapes(made, settings)
        built = plan.identity(made.onnx, gpu, "11.2.1", profile)
        files.write(made.plan / "model.plan", "plan")
        of_plan = {"sha256": files.sha256(made.plan / "model.plan")}
        manifest = {"identity": built, "plan": of_plan}
        files.write(made.plan / "manifest.json", json.dumps(manifest))

    shutil.rmtree(made.plan)
    for version, fits in (("11.1.0", pytest.raises(UserError)), ("11.2.1", nullcontext())):
        stack = Mock(gpu=gpu, tensorrt=version, run_step=run_step)
        with fits as refused:
            engines._build_plan(stack, settings, layout(GPU), pipelines.main(), made)
        if refused:
            assert "server's image: TensorRT: 11.2.1 -> 11.1.0" in refused.value.cause


def test_what_a_plan_answers_is_reported_by_the_step_after_it(made: Workspace) -> None:
    """By the network's identity, of which that step has the manifest; on a CPU the network does."""
    for each, has_it in ((GPU, True), (CPU, False)):
        found = model_folders.contents(pipelines.main(), made, layout(each))
        assert ("manifest.json" in found["postprocessing"]) == has_it
    assert not step_reports.find_silent_network(made.folder)
    first = step_reports.find_silent_network(made.onnx)
    (made.onnx / "manifest.json").write_text("another network's")
    assert first and first != step_reports.find_silent_network(made.onnx)


def test_a_broken_config_is_reported_in_one_line(made: Workspace, repository: Path) -> None:
    model_folders.lay_out(pipelines.main(), made, layout(), repository)
    (repository / "preprocessing" / "config.pbtxt").write_text("name: preprocessing {")
    with pytest.raises(UserError, match=r"preprocessing/config\.pbtxt is not a valid model config"):
        model_folders.configure(pipelines.main(), made, layout(), repository)


def test_what_is_as_it_has_to_be_is_not_written(made: Workspace, repository: Path) -> None:
    """Triton would load it anew."""
    model_folders.lay_out(pipelines.main(), made, layout(), repository)
    written = {path: path.stat().st_ino for path in repository.rglob("*.pbtxt")}
    model_folders.configure(pipelines.main(), made, layout(), repository)
    assert written == {path: path.stat().st_ino for path in repository.rglob("*.pbtxt")}


@pytest.mark.parametrize(
    ("cores", "share"),
    [
        (1, Share(2, 1)),
        (2, Share(2, 2)),
        (4, Share(4, 2)),
        (16, Share(16, 2)),
        (6, Share(6, 2)),
        (32, Share(16, 2)),
    ],
)
def test_shares_of_the_machine(cores: int, share: Share) -> None:
    assert Share.of_cores(cores) == share


def test_agreement_counts_what_differs() -> None:
    reference = np.array([[9.0, 0.0], [0.0, 9.0]], np.float32)
    assert compare(reference, reference).within(Bound(0))
    other = compare(reference, reference[::-1].copy())
    assert other.top1_equal == 0 and other.max_difference > 0.9
    assert not compare(reference, np.full_like(reference, np.nan)).within(Bound(1))


def test_programs_without_a_network_have_a_bound(tmp_path: Path) -> None:
    """Functions, videos, kinds of the user's: a rollout judges them too."""
    of_network = gate.read_bound(tmp_path / "onnx", "fp32")
    assert gate.for_the_ensemble(of_network, 5) == gate.find_served_bound(tmp_path, "fp32", 5)


@pytest.mark.parametrize(
    ("facts", "bound"),
    [({"eight_bits": True}, engine.EIGHT_BITS), ({}, Bound(0.05))],
)
def test_a_network_of_the_users_has_one_bound_on_a_gpu(
    facts: dict[str, Any], bound: Bound, made: Workspace
) -> None:
    """At the gate and in a rollout. TF32 rounds as fp16 does."""
    manifest = replace(made.manifest, identity={"precision": "fp32"}, onnx=facts)
    files.write(made.onnx / "manifest.json", manifest.dump())
    precision = precision_of(made, GPU)
    assert gate.read_bound(made.onnx, precision) == bound
    served = gate.find_served_bound(made.onnx, precision, 5)
    assert served == gate.for_the_ensemble(bound, 5)


def test_a_tie_is_no_disagreement() -> None:
    reference = np.array([[5.0, 5.001, 0.0]], np.float32)
    assert compare(reference, reference[:, [1, 0, 2]]).top1_equal == 1


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "onnx"
    with files.whole_folder(target) as draft:
        (draft / "a").write_text("first")
    with pytest.raises(RuntimeError), files.whole_folder(target) as draft:
        (draft / "a").write_text("second")
        raise RuntimeError
    assert (target / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["onnx"]


# Quantisation.


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, and one file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(8):
        (folder / f"{number}.jpg").write_bytes(picture())
    (folder / "LICENCE").write_text("no picture")
    return folder


def test_few_pictures_are_shown_in_more_views(photos: Path) -> None:
    how = Transform(resize=64, crop=56)
    read = samples.read(photos, 400, "CALIBRATION")
    shown = list(quantise.views(read, how))
    assert len(read) == 8 and len(shown) == 8 * 2 * 4
    assert all(view.shape == (3, 56, 56) for view in shown)
    assert np.array_equal(shown[8], shown[0][:, :, ::-1])
    assert len(list(quantise.views(read * 20, how))) == 160  # enough: each as it is


def test_what_came_or_went_is_told_by_its_names() -> None:
    labels = {"labels": {"source": "street.txt", "sha256": "12ab"}}
    came = ["labels.sha256: none -> 12ab", "labels.source: none -> street.txt"]
    assert differences({"labels": None}, labels) == came
    assert differences(labels, {}) == [
        "labels.sha256: 12ab -> none",
        "labels.source: street.txt -> none",
    ]
    assert differences({"labels": None}, {}) == []


def test_what_differs_is_told_whole_but_for_hashes_and_programs() -> None:
    old, new = (f"Debian GNU/Linux {release}" for release in ("12 (bookworm)", "13 (trixie)"))
    assert differences({"system": old}, {"system": new}) == [f"system: {old} -> {new}"]
    assert differences("1a" * 32, "2b" * 32, "onnx") == ["onnx: 1a1a1a1a1a1a… -> 2b2b2b2b2b2b…"]
    assert differences(None, "import re\nimport numpy\n", "pre") == ["pre: none -> import re…"]
