"""Names of files from elsewhere: none of them leads out of the folder that they are for."""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from pydantic import ValidationError

from bundle_serving.networks import ONNX
from scripts.artefacts.manifest import external_data
from scripts.base import files
from scripts.base.errors import UserError
from scripts.intake.signature import whole
from scripts.recipes import pipelines
from scripts.recipes.recipe import Ensemble
from scripts.repository import archive
from scripts.settings.settings import DEFAULTS

PARTS = (
    *("a", "b.onnx", "ä", " ", "...", "a b", "-", "~", "$HOME", "%2e%2e", "c:", "\udc80"),
    *("", ".", "..", "/", "\0", "\\", "..\\", "\n", "\x1b[2J", "\x7f", "\ud800", "x" * 300),
    *("out", "in", "round", "pipe", "folder", "file", "{outside}"),
)


def names(outside: Path) -> Iterator[str]:
    """Each part alone, each two, and many longer ones."""
    parts = [part.format(outside=outside) for part in PARTS]
    yield from parts
    yield from map("/".join, itertools.product(parts, repeat=2))
    chance = random.Random(4711)
    for _ in range(1000):
        yield "/".join(chance.choices(parts, k=chance.randint(3, 6)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With links, a pipe, a folder and a file in it."""
    made = tmp_path / "folder"
    (made / "folder" / "deep").mkdir(parents=True)
    (made / "file").write_text("a file")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (made / "out").symlink_to(outside)
    (made / "in").symlink_to("folder")
    (made / "round").symlink_to("round")
    os.mkfifo(made / "pipe")
    return made


def around(folder: Path) -> set[Path]:
    return {path for path in folder.parent.rglob("*") if folder not in path.parents}


def test_what_may_lie_below_a_folder_lies_there(folder: Path) -> None:
    before, fine = around(folder), 0
    for name in names(folder.parent / "outside"):
        if files.why_not_below(folder, name):
            continue
        fine += 1
        target = folder / name
        files.write(target, "written")
        assert target.is_file() and target.resolve().is_relative_to(folder), ascii(name)
        target.unlink()
        for made in target.parents:  # so that the next name finds it as this one did
            if made == folder or made.is_symlink() or any(made.iterdir()):
                break
            made.rmdir()
    assert fine > 200 and around(folder) == before
    assert (folder.parent / "outside" / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/", "/etc/passwd", "a//b", "//a", "a/", "./a", "a/.", "a/../b", "../a"),
        *("a\0b", "a\\b", "..\\a", "a\nb", "\x7f", "x" * 256, "ä" * 128, "\ud800"),
        *("out/a", "out", "round", "round/a", "pipe", "pipe/a", "folder", "in", "file/a"),
    ],
)
def test_what_may_not_lie_there_is_refused_by_its_name(folder: Path, name: str) -> None:
    why = files.why_not_below(folder, name)
    assert why.startswith(ascii(name)) and why.isprintable()


@pytest.mark.parametrize("name", ["a", "a/b/c.onnx", "..a", "a..", "...", "ä b", "file", "in/new"])
def test_usual_names_may(folder: Path, name: str) -> None:
    assert files.why_not_below(folder, name) == ""


def test_a_file_is_no_folder_of_another(folder: Path) -> None:
    assert files.why_not_below(folder, "a", "b/c") == ""
    assert "'a/b' lies below 'a'" in files.why_not_below(folder, "a/b", "a")


@pytest.mark.parametrize("named", ["../out", "/{outside}", "a/../../b", "", "."])
@pytest.mark.parametrize("what", ["model", "file"])
def test_a_version_names_its_own_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, named: str
) -> None:
    """Its record may come from S3 or from a backup; models that it names are laid out, and their
    other versions removed."""
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    first, named = pipelines.main(), named.format(outside=tmp_path)
    with archive.draft(first, None) as draft:
        version = archive.keep(draft, {"network": {"model.py": "x"}}, DEFAULTS, first, None)
    assert archive.load(first, 1) == version
    model, file = (named, "model.py") if what == "model" else ("network", named)
    record = version.record | {"models": {model: 1}, "hashes": {model: {file: "0"}}}
    files.write(version.folder / archive.RECORD, json.dumps(record))
    with pytest.raises(UserError, match=r"version\.json cannot be read"):
        archive.load(first, 1)


@pytest.mark.parametrize(
    "changed",
    [
        *({"models": {"network": number}} for number in ("/out", "../../out", "1", 0, True, None)),
        {"models": {"..": 1}, "hashes": {"..": {}}},
        *({"number": number} for number in (2, "1", "../2", None)),
        {"settings": []},
    ],
)
def test_a_version_has_numbers_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    """Which are parts of the folders that it is laid out in."""
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    first = pipelines.main()
    with archive.draft(first, None) as draft:
        version = archive.keep(draft, {"network": {"model.py": "x"}}, DEFAULTS, first, None)
    files.write(version.folder / archive.RECORD, json.dumps(version.record | changed))
    with pytest.raises(UserError, match=r"version\.json cannot be read"):
        archive.load(first, 1)


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "", "a\n"])
def test_a_model_is_called_by_a_name(name: str) -> None:
    with pytest.raises(ValidationError):
        Ensemble(ensemble=name)


def test_weights_are_taken_from_beside_a_network_alone(folder: Path) -> None:
    """As the file says where they are: a key and a value, each after its length."""
    network = folder / ONNX
    for name in ("file", "in/weights", "out/kept", "../outside/kept", "pipe", "folder", "a\0b"):
        (folder / "folder" / "weights").write_text("weights")
        value = name.encode()
        network.write_bytes(b"\n\x08location\x12" + bytes([len(value)]) + value)
        fine = name in ("file", "in/weights")
        assert external_data(network) == ([folder / name] if fine else []), name


@pytest.mark.parametrize("where", ["initializer", "attribute", "sparse", "function"])
def test_wherever_a_network_keeps_weights_elsewhere_they_are_missed(
    tmp_path: Path, where: str
) -> None:
    """Else ONNX Runtime would look for them."""
    away = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location="EXTERNAL")
    away.external_data.add(key="location", value="../../secret")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    constant = onnx.helper.make_node("Constant", [], ["c"], value=away)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph)
    if where == "initializer":
        model.graph.initializer.append(away)
    elif where == "attribute":
        model.graph.node.append(constant)
    elif where == "sparse":
        model.graph.sparse_initializer.add(dims=[8]).values.CopyFrom(away)
    else:
        function = model.functions.add(name="f", domain="mine")
        function.node.append(onnx.helper.make_node("If", ["x"], ["y"]))
        inner = function.node[0].attribute.add(name="then_branch", type="GRAPH").g
        inner.initializer.append(away)
    onnx.save(model, tmp_path / ONNX)
    with pytest.raises(UserError, match="which is not beside it"):
        whole(tmp_path / ONNX)
