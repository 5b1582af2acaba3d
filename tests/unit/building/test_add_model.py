"""The settings of make add-model, before anything is made of them."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from onnx import TensorProto, helper, save
from onnx import load as load_onnx

from bundle_serving.address import Address
from scripts.artefacts.manifest import Foreign, lines_of, tell_repeated
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import locate
from scripts.recipes import folders, pipelines
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.schema import load
from scripts.repository import archive, custom, live, own_pipelines
from scripts.repository.custom import recipe
from scripts.repository.own_pipelines import (
    keep_folder,
    require_a_name,
    require_new,
    write_models,
    write_pipeline,
)
from scripts.repository.sources import find_source, require_trusted
from scripts.server import engines, labelled_photos, own_main, own_network, up
from scripts.server.agreeing import require_shown, samples
from scripts.settings.settings import Settings


@pytest.fixture
def network(tmp_path: Path) -> Path:
    pixels, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("in", ("n", 3, 112, 112)), ("out", ("n", 2)))
    )
    node = helper.make_node("Identity", ["in"], ["out"])
    save(
        helper.make_model(helper.make_graph([node], "net", [pixels], [scores])), tmp_path / "a.onnx"
    )
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    (tmp_path / "one.txt").write_text("cat\n")
    (tmp_path / "gap.txt").write_text("cat\n\ndog\n")
    (tmp_path / "no_label.txt").write_text("\n")
    return tmp_path / "a.onnx"


def test_a_recipe_of_a_file(network: Path) -> None:
    labels = network.with_name("two.txt")
    made = recipe("pets", {"ONNX": str(network), "LABELS": str(labels)})
    assert (made.classes, made.pictures.crop, made.pictures.resize) == (2, 112, 128)
    pipeline = Pipeline("pets", made)
    assert made.labels_file == labels and made.defaults()["WEIGHTS"] == str(network)
    assert pipeline.recipe.members == {
        *("pets_preprocessing", "pets_preprocessing_dali", "pets_postprocessing"),
        *("pets_onnx", "pets_trt"),
    }
    assert recipe("pets", {"ONNX": str(network)}).labels_file is None


def give_one_number(network: Path) -> None:
    model = load_onnx(network)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    save(model, network)


def test_labels_of_a_network_of_one_number(network: Path) -> None:
    """They are of its two answers: that a picture is not, and that it is."""
    give_one_number(network)
    for text in ("cat\n", "dog\ncat\n"):
        (labels := network.with_name("two.txt")).write_text(text)
        recipe("pets", {"ONNX": str(network), "LABELS": str(labels)})
    labels.write_text("cat\ndog\nmug\n")
    with pytest.raises(UserError, match=r"has 3 labels, and a\.onnx 2 classes"):
        recipe("pets", {"ONNX": str(network), "LABELS": str(labels)})


def test_the_opposite_of_one_label_is_a_class_of_labelled_pictures(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_one_number(network)
    labels, data = network.with_name("one.txt"), tmp_path / "val"
    pets = Pipeline("pets", recipe("pets", {"ONNX": str(network), "LABELS": str(labels)}))
    for label in ("cat", "not cat"):
        files.write(data / label / "photo.jpg", "")
    monkeypatch.setenv("EVAL", str(data))

    def try_pictures(_: Step, *words: str | Path) -> None:
        items = json.loads(Path(words[words.index("--items") + 1]).read_text())
        assert sorted(number for _, number in items) == [0, 1]
        found = {"of": 2, "best": 2, "usual": 2, "tried": {}, "pictures": {}, "order": []}
        files.write(Path(words[words.index("--out") + 1]), json.dumps(found))

    stack: Any = SimpleNamespace(run_step=try_pictures)
    assert labelled_photos.find_pictures(pets, stack) == pets


def test_labels_are_read_as_they_look(tmp_path: Path) -> None:
    """Byte order mark, CRLF, spaces around and empty lines at the end cannot be seen."""
    labels = tmp_path / "labels.txt"
    labels.write_bytes("\ufeffblack cat\r\n dog\t \r\n\r\n\r\n".encode())
    assert lines_of(labels) == ["black cat", "dog"]


def test_labels_in_utf_16_without_a_mark_are_refused(tmp_path: Path) -> None:
    (labels := tmp_path / "labels.txt").write_bytes("cat\ndog\n".encode("utf-16-le"))
    with pytest.raises(UserError, match=r"cannot read labels .* as UTF-16 has"):
        lines_of(labels)


def test_labels_that_are_there_twice_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    tell_repeated(["crane", "mug", "crane", "mug"])
    tell_repeated(["crane", "mug"])
    (told,) = capsys.readouterr().out.splitlines()
    assert told.startswith("  warning: of the labels, lines 1 and 3 are the same: crane;")


def test_a_recipe_of_an_architecture(network: Path) -> None:
    made = recipe("light", {"ARCH": "resnet18"})
    assert (made.source, made.weights, made.labels) == (
        *("torchvision/resnet18", "default", "torchvision"),
    )
    defaults = made.defaults()
    assert defaults == {"ARCH": "resnet18", "WEIGHTS": "default", "PRECISION": "auto"}
    own = {"ARCH": "resnet18", "WEIGHTS": "w.pth", "LABELS": str(network.with_name("two.txt"))}
    assert recipe("pets", own).classes == 2


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({}, "no network given"),
        ({"ARCH": "resnet5"}, "ARCH=resnet5 is not one of torchvision's"),
        ({"ONNX": "none.onnx"}, "no network at"),
        ({"ONNX": "a.onnx", "ARCH": "resnet18"}, "a.onnx is already a complete network"),
        ({"ONNX": "two.txt"}, "cannot be read as ONNX"),
        ({"ONNX": "a.onnx", "LABELS": "none.txt"}, "cannot read labels"),
        ({"ONNX": "a.onnx", "LABELS": "a.onnx"}, "labels"),
        ({"ONNX": "a.onnx", "LABELS": "no_label.txt"}, "no_label.txt has no labels"),
        ({"ONNX": "a.onnx", "LABELS": "gap.txt"}, r"has 3 labels \(line 2 is empty\), and"),
        ({"ONNX": "a.onnx", "LABELS": "one.txt"}, r"has 1 label, and a\.onnx 2 classes"),
        ({"ARCH": "resnet18", "LABELS": "one.txt"}, "softmax over one class says nothing"),
        ({"ARCH": "resnet18", "OUTPUT": "multi-label"}, "OUTPUT= is not for torchvision's"),
        ({"ARCH": "resnet18", "PICTURES": "pad: 1"}, "PICTURES= is not for torchvision's"),
        ({"ARCH": "resnet18", "SIZE": "64"}, "SIZE= is not for torchvision's"),
    ],
)
def test_what_is_refused_at_once(
    network: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], cause: str
) -> None:
    monkeypatch.chdir(network.parent)
    with pytest.raises(UserError, match=cause):
        recipe("pets", given)


@pytest.mark.parametrize("name", ["", "pe ts", "9pets", "../pets", "-pets", "a.b"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UserError, match=r"valid name|no NAME"):
        require_a_name(name)


@pytest.mark.parametrize(
    "name", ["preprocessing", "Preprocessing", *(each.name for each in pipelines.others())]
)
def test_what_is_there_is_not_taken_for_something_new(name: str) -> None:
    with pytest.raises(UserError, match="already exists"):
        require_new(Pipeline(name, recipe(name, {"ARCH": "resnet18"})))


def test_which_networks_pytorch_exports(network: Path) -> None:
    """Of the others, `make images` builds no image with it."""
    own = Pipeline("test_pets", recipe("test_pets", {"ONNX": str(network)}))
    usual = Settings.load({}, Path("/none"))
    assert not engines.needs_pytorch(usual.fill_from(own.recipe.defaults()), own)
    main = pipelines.main()
    assert engines.needs_pytorch(usual, main)
    assert not engines.needs_pytorch(usual.replace_with(FROM="pets.onnx"), main)


def test_nothing_is_left_of_what_failed(network: Path) -> None:
    pipeline = Pipeline("test_pets", recipe("test_pets", {"ONNX": str(network)}))
    own = folders.own()
    path = own.recipes / "test_pets.yaml"
    with pytest.raises(KeyboardInterrupt), write_pipeline(pipeline, ""):
        assert load(path) == pipelines.find_pipeline("test_pets").recipe == pipeline.recipe
        assert (own.models / "test_pets_onnx" / "config.pbtxt").exists()
        raise KeyboardInterrupt
    assert not path.exists() and not list(own.models.glob("test_pets*"))


def test_versions_of_an_earlier_pipeline_are_not_taken_for_a_new_ones(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(own_pipelines, "ROOT", tmp_path)
    pipeline = Pipeline("pets", recipe("pets", {"ONNX": str(network)}))
    require_new(pipeline)
    files.write(archive.home(pipeline) / "1" / archive.RECORD, "{}")
    with pytest.raises(UserError, match="versions of an earlier pets are in versions/pets"):
        require_new(pipeline)


def test_what_the_user_keeps_in_the_networks_folder_stays(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    mine = folders.own().networks / "pets" / network.name
    mine.parent.mkdir(parents=True)
    mine.write_bytes(network.read_bytes())
    pipeline = Pipeline("pets", recipe("pets", {"ONNX": str(mine)}))
    with pytest.raises(KeyboardInterrupt), keep_folder("pets", {}), write_pipeline(pipeline, ""):
        raise KeyboardInterrupt
    assert mine.exists()
    with keep_folder("pets", {}), write_pipeline(pipeline, ""):
        pass
    mark = mine.parent.with_name(".pets.begun")
    files.write(mark, "")  # as a run that was killed while its server started
    own_pipelines.remove(pipeline)
    assert mine.exists() and not mark.exists()
    with pytest.raises(UserError, match="is there already"):
        own_network.recipe_of("pets", {"FROM": "timm/resnet18"})


def test_what_is_made_in_the_networks_folder_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    for what in (KeyboardInterrupt, SystemExit):
        with pytest.raises(what), keep_folder("pets", {}) as folder:
            files.write(folder / "pets.onnx", "")
            raise what
        assert not folder.exists()
    killed = keep_folder("pets", {})
    files.write(killed.__enter__() / "pets.onnx", "")
    with keep_folder("pets", {}):
        assert not folder.exists()
    assert not list(folder.parent.iterdir())


@pytest.mark.parametrize("word", ["FROM", "LABELS"])
def test_what_the_user_puts_where_a_run_was_killed_stays_if_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    mine = folders.own().networks / "pets" / "mine"
    files.write(mine.parent.with_name(".pets.begun"), "")
    files.write(mine, "")
    with pytest.raises(KeyboardInterrupt), keep_folder("pets", {word: str(mine)}):
        raise KeyboardInterrupt
    assert mine.exists()


@pytest.mark.parametrize("beside", ["", "given.json", "about.json", "made_of.json"])
def test_what_an_earlier_release_took_in_from_there_stays_if_it_is_the_users(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """It set no mark, and wrote given.json for a main pipeline alone."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    (folder := folders.own().networks / "pets").mkdir(parents=True)
    labels = shutil.copy(network.with_name("two.txt"), folder)
    if beside != "given.json":
        network = Path(shutil.copy(network, folder))
    pipeline = Pipeline("pets", recipe("pets", {"ONNX": str(network)}))
    if beside:
        files.write(folder / beside, json.dumps({"FROM": str(network), "LABELS": str(labels)}))
    own_pipelines.remove(pipeline)
    assert folder.exists() == (beside in ("", "given.json"))


def test_what_was_taken_in_by_another_name_is_not_taken_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5.0 took the computer's in WSL 2, where nobody gave any."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    own, given = folders.own(), {"FROM": "own/birds.onnx"}
    for name, labels in (("DESKTOP-1", "own/birds.txt"), ("Wrens", "own/wrens.txt")):
        noted = json.dumps(given | {"LABELS": labels, "NAME": name})
        files.write(own.networks / name / own_pipelines.GIVEN, noted)
        assert own_main._find_name(given) == "birds"  # of which there is a folder alone
    for name in ("DESKTOP-1", "Wrens"):
        files.write(own.recipes / f"{name}.yaml", "")
    assert own_main._find_name(given | {"LABELS": "own/wrens.txt"}) == "Wrens"
    assert own_main._find_name(given) == "DESKTOP-1"
    files.write(own.recipes / "birds.yaml", "")
    files.write(own.networks / "birds" / own_pipelines.GIVEN, json.dumps(given))
    assert own_main._find_name(given) == "birds"


def test_an_addition_that_was_killed_can_be_removed(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline("test_pets", recipe("test_pets", {"ONNX": str(network)}))

    def write(*_: object) -> None:
        assert "test_pets" in pipelines.of_the_user()
        raise KeyboardInterrupt

    monkeypatch.setattr(own_pipelines, "write_models", write)
    with pytest.raises(KeyboardInterrupt), write_pipeline(pipeline, ""):
        pass


def test_a_removal_that_was_killed_is_taken_up_again(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the rest would be nobody's, and keep others from the name."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    own, pipeline = folders.own(), Pipeline("pets", recipe("pets", {"ONNX": str(network)}))
    write_models(pipeline.recipe, own.models)
    files.write(own.recipes / "pets.yaml", yaml.safe_dump(pipeline.recipe.model_dump(mode="json")))
    files.write(archive.home(pipeline) / "1" / archive.RECORD, "{}")
    rmtree, removed = shutil.rmtree, list[Path]()

    def be_killed(folder: Path, ignore_errors: bool) -> None:
        rmtree(folder, ignore_errors=ignore_errors)
        removed.append(folder)
        if len(removed) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", be_killed)
    with pytest.raises(KeyboardInterrupt):
        own_pipelines.remove(pipelines.find_pipeline("pets"))
    assert removed[0] == own.models / "pets"  # the ensemble, by which the others are told whole
    own_pipelines.remove(pipelines.find_pipeline("pets"))
    assert not [path for path in tmp_path.rglob("pets*") if path.name != network.name]
    require_new(pipeline)


def test_a_sample_is_a_picture_and_what_it_shows(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.touch()
    mug = (photo, "coffee mug")
    assert samples("") == []
    assert samples(f"{photo}=coffee mug") == [mug]
    assert samples(f"'{photo}=coffee mug' {photo}=car") == [mug, (photo, "car")]
    for wrong in (f"{photo}", f"{photo}=", "none.jpg=car", f"'{photo}=car"):
        with pytest.raises(UserError, match="does not name a picture"):
            samples(wrong)


def test_a_sample_that_is_no_picture_is_named(tmp_path: Path) -> None:
    (empty := tmp_path / "photo.jpg").touch()
    pipeline: Any = SimpleNamespace(ensemble="pets")
    server: Any = SimpleNamespace(http=Address("127.0.0.1", 1))  # which is not asked
    with pytest.raises(UserError, match=r"photo\.jpg: it is empty"):
        require_shown(pipeline, server, [(empty, "coffee mug")])


def test_how_pictures_are_given(network: Path) -> None:
    onnx = {"ONNX": str(network)}
    made = recipe("pets", onnx | {"PICTURES": "fit: letterbox, pad: 114, channels: bgr"}).pictures
    assert (made.fit, made.pad, made.channels, made.resize) == ("letterbox", 114, "bgr", 112)
    # What lies beside a network is taken, and the user's word before it.
    beside = network.with_name("preprocessor_config.json")
    size = {"height": 112, "width": 112}
    beside.write_text(json.dumps({"size": size, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}))
    made = recipe("pets", onnx).pictures
    assert (made.fit, made.mean, made.std) == ("squash", (0.5,) * 3, (0.2,) * 3)
    assert made.middle == "first"
    assert recipe("pets", onnx | {"PICTURES": "mean: [0, 0, 0]"}).pictures.std == (0.2,) * 3
    beside.rename(other := network.with_name("how.json"))
    assert recipe("pets", onnx | {"PICTURES": str(other)}).pictures == made
    for wrong, cause in (
        ("fit: stretch", "pictures.fit: input should be 'crop', 'squash' or 'letterbox'"),
        ("resize: 64", "resize must be at least as large as crop"),
        ("std: [1, 0, 1]", "std must not be 0"),
        ("mean: [0.5]", "mean and std of rgb have 3 each"),
        ("colour: red", "extra inputs are not permitted"),
        ("fit: [", "cannot be understood"),
        ("resize: [256, 256]", "resize: [256, 256] is not the short side, in pixels"),
        ("resize: abc", "resize: abc is not the short side"),
        ("resize: null", "resize: None is not the short side"),
        ("crop: 0", "crop: 0 is not a side, or [height, width]"),
        ("crop: [a, b]", "is not a side, or [height, width]"),
        ("pictures: 5", "cannot be understood"),
        ("scale: .inf", "pictures.scale: input should be a finite number"),
        ("none.json", "cannot read PICTURES"),
    ):
        with pytest.raises(UserError, match=re.escape(cause)):
            recipe("pets", onnx | {"PICTURES": wrong})
    beside.write_text(json.dumps({"size": {"shortest_edge": 0}}))  # says nothing
    assert recipe("pets", onnx).pictures.resize == 128


def test_levels_that_a_network_takes_as_they_are(network: Path) -> None:
    model = load_onnx(network)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    save(model, network)
    how = {"size": {"height": 112, "width": 112}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    network.with_name("preprocessor_config.json").write_text(json.dumps(how))
    given = {"ONNX": str(network), "PICTURES": "mean: [0, 0, 0]"}
    made = recipe("pets", given).pictures
    assert (made.scale, made.mean, made.std) == (1, (0, 0, 0), (1, 1, 1))
    with pytest.raises(UserError, match=r"takes whole numbers, .* std would change nothing"):
        recipe("pets", given | {"PICTURES": "std: [2, 2, 2]"})
    beside = network.with_name("preprocessor_config.json")  # as where it lies there by itself
    assert recipe("pets", given | {"PICTURES": str(beside)}).pictures == made


def test_three_equal_levels_are_one_of_a_grey_network(network: Path) -> None:
    model = load_onnx(network)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    save(model, network)
    how = {"size": {"height": 112, "width": 112}, "image_mean": [0.5] * 3, "image_std": 0.25}
    network.with_name("preprocessor_config.json").write_text(json.dumps(how))
    made = recipe("pets", {"ONNX": str(network)}).pictures
    assert (made.channels, made.mean, made.std) == ("grey", (0.5,), (0.25,))


def test_labels_beside_a_network_are_a_line_each(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are, where somebody read them with their line ends."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    config = {"id2label": {"0": "black\ncat\n", "1": ""}}
    network.with_name("config.json").write_text(json.dumps(config))
    made = recipe("pets", {"ONNX": str(network)})
    assert lines_of(made.labels_file) == ["black cat", "class 1"]


def test_demo_shows_the_network_that_env_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_main, "DOTENV", tmp_path / ".env")
    (tmp_path / ".env").write_text("FROM=birds.onnx\n")
    monkeypatch.setattr(own_main, "_bring_up_own", Mock(side_effect=UserError("begun", "")))
    with pytest.raises(UserError, match="begun"):
        import_module("scripts.commands.serve.demo").main()


def test_labels_of_another_file_are_compared_with_those_that_were_found(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))

    def say(*labels: str) -> None:
        config = {"id2label": dict(enumerate(labels))}
        network.with_name("config.json").write_text(json.dumps(config))

    def publish(file: Path, live: str = "") -> None:
        manifest = SimpleNamespace(identity={"sha256": live})
        settings = Settings.load({"WEIGHTS": str(file)}, Path("/none"))
        own_network.require_as_said(pets, settings, Mock(manifest=manifest))

    say("black\ncat", "dog")
    made = recipe("pets", {"ONNX": str(network)})
    pets = Pipeline("pets", made)
    (other := tmp_path / "later" / "b.onnx").parent.mkdir()
    shutil.copy(network, other)
    publish(other)  # which says none
    shutil.copy(network.with_name("config.json"), other.parent)
    assert made.labels_file
    made.labels_file.write_text("black Cat\nDog\n")
    publish(other)  # as the first one, which the user has other words for
    publish(network)  # trained again over the same file
    say("dog", "black cat")
    publish(network, live=files.sha256(network))
    settings = Settings.load({"WEIGHTS": str(network)}, Path("/none"))
    seed = Mock(workspace=Workspace(tmp_path / "lost"))
    with pytest.raises(UserError, match=r"a\.onnx calls class 0 dog, and .* calls it black Cat"):
        up.build_version(Mock(), settings, pets, seed)  # with each start, too
    given = {"ONNX": str(network), "LABELS": str(network.with_name("two.txt"))}
    pets = Pipeline("pets", recipe("pets", given))
    publish(network)


def test_another_file_wants_pictures_and_is_read_as_the_first(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))

    def say(beside: Path, mean: float, problem: str = "", **more: object) -> None:
        how = {"size": {"height": 112, "width": 112}, "image_mean": [mean] * 3, "resample": 3}
        how |= more
        (beside.parent / "preprocessor_config.json").write_text(
            json.dumps(how | {"image_std": [0.5] * 3})
        )
        (beside.parent / "config.json").write_text(json.dumps({"problem_type": problem}))

    say(network, 0.5)
    made = recipe("pets", {"ONNX": str(network), "PICTURES": "interpolation: box"})
    made = made.model_copy(update={"answers": "single-label"})
    (other := tmp_path / "later" / "b.onnx").parent.mkdir()
    shutil.copy(network, other)
    for file in (other, network):
        custom.require_as_said("pets", made, file)  # says nothing, or what it had said
        say(file, 0.25)
        with pytest.raises(UserError, match=r"pictures otherwise .* bicubic.* - 0\.25/"):
            custom.require_as_said("pets", made, file)
        how = {"mean": (0.25,) * 3, "interpolation": "bicubic"}
        pictures = made.pictures.model_copy(update=how)
        custom.require_as_said("pets", made.model_copy(update={"pictures": pictures}), file)
        say(file, 0.25, do_center_crop=True, crop_size=224)
        with pytest.raises(UserError, match="resize must be at least as large as crop"):
            custom.require_as_said("pets", made, file)
        say(file, 0.5)
        custom.require_as_said("pets", made, file)
        say(file, 0.5, "multi_label_classification")
        with pytest.raises(UserError, match="gives multi-label, and pets is single-label"):
            custom.require_as_said("pets", made, file)
    (tmp_path / "own" / "networks" / "pets" / custom.SAID).unlink()  # as of an earlier release
    custom.require_as_said("pets", made, network)


@pytest.mark.parametrize("given", [{"ONNX": "a.onnx"}, {"ARCH": "resnet18", "WEIGHTS": "w.pth"}])
def test_labels_that_a_check_has_put_in_order_are_kept_in_own(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    """The next check writes over them, and `make clean` removes them."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr(custom, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    (ordered := tmp_path / "build" / "eval" / "pets.txt").parent.mkdir(parents=True)
    shutil.copy(network.with_name("two.txt"), ordered)
    made = recipe("pets", given | {"LABELS": "build/eval/pets.txt"})
    ordered.unlink()
    assert lines_of(made.labels_file) == ["cat", "dog"]


@pytest.mark.parametrize("name", ["pets.pth", "pets.pt", "pets.keras", "folder"])
def test_what_was_converted_and_has_changed_since_is_published_by_its_name(
    network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr("scripts.bootstrap.ensure", lambda _: None)
    converted = list[Path]()

    def convert(_: Step, *words: str | Path) -> None:
        out = Path(words[words.index("--out") + 1])
        out.parent.mkdir(parents=True)
        shutil.copy(network, out)
        # A version's recipe says how its pictures are prepared; a Keras file never does.
        assert source.suffix == ".keras" or ("--pictures-given" in words) == bool(converted)
        converted.append(out)
        if source.suffix == ".pth":
            assert "--source=timm/resnet18" in words and source in words

    monkeypatch.setattr(own_network, "run_here", convert)
    source = written = tmp_path / name
    if not source.suffix:
        source.mkdir()
        written = source / "config.json"
    written.write_text("{}")
    words = {"FROM": str(source)}
    if source.suffix == ".pth":  # weights, of timm's network
        words = {"FROM": "timm/resnet18", "WEIGHTS": str(source)}
    made = own_network.recipe_of("pets", words | {"SIZE": "112"})
    pipeline = Pipeline("pets", made)
    own_network.tell_changed(pipeline)
    assert "has changed" not in capsys.readouterr().out
    written.write_text('{"trained": "again"}')
    own_network.tell_changed(pipeline)
    told = f"{source} has changed since; for a new version of it: make publish"
    assert told in capsys.readouterr().out.replace("\n", " ")
    assert own_network.import_version(pipeline, str(source)) == str(converted[1])
    own_network.tell_changed(pipeline)
    assert len({*converted}) == 2 and "has changed" not in capsys.readouterr().out
    monkeypatch.setattr(own_network, "_digest", Mock(side_effect=PermissionError))
    own_network.tell_changed(pipeline)  # another user's, who alone may read it
    missing = str(source.with_name("none.pt"))  # of which the version says that it is missing
    assert own_network.import_version(pipeline, missing) == missing


def test_a_link_to_a_network_is_what_it_is_called_and_lies_beside(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Hugging Face's cache has them: links to files that are called by their hash."""
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    (blobs := tmp_path / "blobs").mkdir()
    (snapshot := tmp_path / "snapshot").mkdir()
    model = load_onnx(network)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1], bytes(4), raw=True)
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights")
    weights.ClearField("raw_data")
    model.graph.initializer.append(weights)
    save(model, blobs / "0a1b")
    (blobs / "weights").write_bytes(bytes(4))
    (blobs / "2c").write_text(json.dumps({"id2label": {"0": "cat", "1": "dog"}}))
    (snapshot / "pets.onnx").symlink_to(blobs / "0a1b")
    (snapshot / "config.json").symlink_to(blobs / "2c")
    for source in (snapshot, snapshot / "pets.onnx"):
        made = own_network.recipe_of("pets", {"FROM": str(source)})
        settings = Settings.load({}, Path("/none")).fill_from(made.defaults())
        assert isinstance(made, Image)
        spec = made.export(settings, CPU).spec
        assert lines_of(made.labels_file) == ["cat", "dog"]
        assert isinstance(spec, Foreign) and spec.network == snapshot / "pets.onnx"
        assert spec.data == (blobs / "weights",)
    (link := tmp_path / "own" / "link").symlink_to(snapshot)
    for folder in (link, snapshot / ".." / "snapshot"):  # whose programs are none of own/
        assert locate(folder) == snapshot


def test_yaml_that_is_code(network: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = f"!!python/object/apply:builtins.open [{str(marker)!r}, w]"
    (how := tmp_path / "how.yaml").write_text(f"resize: {code}\n")
    with pytest.raises(UserError, match="cannot be understood"):
        recipe("pets", {"ONNX": str(network), "PICTURES": str(how)})
    with pytest.raises(UserError, match="cannot be understood"):
        recipe("pets", {"ONNX": str(network), "PICTURES": f"resize: {code}"})
    (tmp_path / "metadata.yaml").write_text(f"task: classify\nimgsz: {code}\n")
    recipe("pets", {"ONNX": str(network)})
    (tmp_path / "MLmodel").write_text(f"flavors: {code}\n")
    with pytest.raises(UserError, match="MLmodel cannot be read"):
        find_source(str(tmp_path))
    assert not marker.exists()


def test_what_is_a_program_wants_to_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    source = find_source(str(tmp_path))
    with pytest.raises(UserError, match="is a program of TensorFlow's") as refusal:
        require_trusted(source, trusted=False)
    assert "TRUST=1" in refusal.value.remedy and "tf2onnx" in refusal.value.remedy
    require_trusted(source, trusted=True)
    (tmp_path / "net.keras").touch()
    require_trusted(find_source(str(tmp_path / "net.keras")), trusted=False)


def test_where_networks_come_from(network: Path, tmp_path: Path) -> None:
    assert find_source(str(network)).network == find_source(str(network.parent)).network == network
    for name in ("timm/resnet18", "google/vit-base-patch16-224", "gpt2"):
        assert find_source(name).other == name
    (torch := tmp_path / "net.pt").touch()
    assert find_source(str(torch)).other == str(torch)
    folder = tmp_path / "logged"
    (folder / "data").mkdir(parents=True)
    logged = folder / "MLmodel"
    logged.write_text("flavors: {pytorch: {model_data: data}}")
    (folder / "data" / "model.pth").touch()
    assert find_source(str(folder)).other == str(folder / "data" / "model.pth")
    for outside in ("../net.pt", str(torch)):
        logged.write_text(f"flavors: {{pytorch: {{model_data: {outside}}}}}")
        with pytest.raises(UserError, match="which is not in its folder"):
            find_source(str(folder))
    logged.write_text("flavors: {sklearn: {pickled_model: model.pkl}}")
    network.rename(tmp_path / "b.onnx")
    (tmp_path / "c.onnx").touch()
    (tmp_path / "net.safetensors").touch()
    for wrong, cause in (
        (str(folder), "no network is taken from the MLflow model"),
        (str(folder / "data"), "has no network of a known kind"),
        (str(tmp_path), "has several networks (b.onnx, c.onnx)"),
        (str(tmp_path / "two.txt"), "no file of a known kind"),
        (str(tmp_path / "net.safetensors"), "is weights, and no network"),
        ("./none", "does not exist"),
        ("a/b/c", "neither a file nor a name on a hub"),
    ):
        with pytest.raises(UserError, match=re.escape(cause)):
            find_source(wrong)
    with pytest.raises(UserError, match="does not exist") as missing:
        find_source("net.pt2")
    assert missing.value.remedy == f"check the path, from {Path.cwd()}"
