"""How right what is served is, on labelled pictures."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from PIL.ImageFilter import GaussianBlur
from safetensors.torch import load_file, save_file

from bundle_client import Client
from scripts.artefacts.drawn.drawings import drawing
from scripts.artefacts.drawn.things import NAMES
from scripts.artefacts.manifest import Torchvision
from scripts.steps import networks
from scripts.steps.vision import torchvision
from tests.end_to_end.serving.test_together import counted
from tests.project import Project, error_lines, picture

LABELS = [f"drawn {name}" for name in NAMES]
COUNT = 480  # sixty of each class, so that classes can be told
ITEMS = COUNT + 1  # with one that is no picture


@pytest.mark.rare
def test_photos_of_classes_by_number(served: Project, tmp_path: Path) -> None:
    """With random weights, which know nothing, all is measured just the same."""
    tmp_path.chmod(0o755)  # containers do not run as root
    for number, label in enumerate((504, 504, 817, 23)):
        (tmp_path / str(label)).mkdir(exist_ok=True)
        (tmp_path / str(label) / f"{number}.jpg").write_bytes(picture())
    (tmp_path / "504" / "broken.jpg").write_bytes(b"no picture")
    before = counted(served)
    output = served.made("eval", EVAL=str(tmp_path))
    assert counted(served) == before, "what users ask is another matter"
    assert re.search(r"right .* of 4\n", output) and "504/broken.jpg" in output
    assert "the same answer as the original to" in output
    found = json.loads(served.made("eval", JSON="1"))  # on what was named the last time
    assert found["items"] == 4 and len(found["refused"]) == 1
    record = json.loads((served.served_version / "version.json").read_text())
    assert record["evaluated"]["of"] == 4 and record["evaluated"]["data"] == tmp_path.name
    assert served.made("history").count(f"4 in {tmp_path.name}") == 1
    assert f"of {tmp_path.name}" in served.made("status")
    assert "version" in served.made("up")  # whose version is the same

    shutil.copytree(tmp_path / "23", tmp_path / "wren")
    (line,) = error_lines(served.make("eval").stderr)
    assert "EVAL has 1 class that ensemble_python_resnet50 does not know: wren (1)" in line
    shutil.rmtree(tmp_path / "23")
    (tmp_path / "23").mkdir()
    (line,) = error_lines(served.make("eval").stderr)
    assert "1 class folder" in line and "23" in line
    shutil.rmtree(tmp_path)
    (line,) = error_lines(served.make("eval").stderr)
    assert "is gone" in line and "EVAL=none" in line
    (line,) = error_lines(served.make("eval", EVAL="none").stderr)
    assert "no labelled data" in line


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """With a network that is right nearly always, as it was trained."""
    project = Project.copy(
        tmp_path_factory.mktemp("eval"),
        **{"FLAVOUR": "local", "ARCH": "drawn", "WEIGHTS": "default", "PRECISION": "fp32"},
        **{"STEPS": "auto", "SAMPLES": "", "WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"},
    )
    project.made("up")
    for name in ("ARCH", "WEIGHTS", "PRECISION", "STEPS"):
        del project.settings[name]
    yield project
    project.end()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("labelled") / "val", np.random.default_rng(99)
    for number in range(COUNT):
        label = number % len(LABELS)
        of_class = folder / LABELS[label]
        of_class.mkdir(parents=True, exist_ok=True)
        drawing(label, random, side=48).save(of_class / f"{number:03}.png")
    (folder / LABELS[0] / "broken.jpg").write_bytes(b"no picture")
    return folder


def answers_of_torch(files: list[Path]) -> list[str]:
    network = networks.build(Torchvision("drawn", "default"))
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in files])
    ask = networks.make_asker(networks.Pixels(network).eval())
    return [LABELS[each] for each in ask(pixels.transpose(0, 3, 1, 2)).argmax(1)]


def ask_drawn(project: Project, blur: float) -> None:
    random = np.random.default_rng(1)
    with Client(url=project.http, protocol="http") as client:
        for number in range(COUNT + 50):  # the last are told with the next
            blurred = drawing(number % len(LABELS), random, side=48).filter(GaussianBlur(blur))
            blurred.save(content := io.BytesIO(), "PNG")
            client.classify(content.getvalue())


@pytest.mark.rare
def test_blurred_pictures_lower_what_is_estimated(drawn: Project, labelled: Path) -> None:
    drawn.made("eval", EVAL=str(labelled))
    ask_drawn(drawn, blur=0)
    told = drawn.made("drift")
    of_a_class = rf"^({'|'.join(LABELS)}) +[\d.]+% +([\d.]+)% +([\d.]+)% to ([\d.]+)%"
    found = re.findall(of_a_class, told, re.MULTILINE)
    assert found, told
    assert all(float(low) < float(about) <= float(high) for _, about, low, high in found)
    ask_drawn(drawn, blur=1.5)
    ask_drawn(drawn, blur=1.5)
    told = drawn.made("drift")
    right = re.search(r"about ([\d.]+)% right, .* at most ([\d.]+)%; ([\d.]+)% of labelled", told)
    assert right and "single classes cannot be told" in told, told
    now, most, then = map(float, right.groups())
    assert now < most < then


def test_it_equals_pytorchs_own_to_the_picture(drawn: Project, labelled: Path) -> None:
    files = sorted(labelled.glob("*/*.png"))
    with torch.inference_mode():
        expected = answers_of_torch(files)
    right = sum(path.parent.name == label for path, label in zip(files, expected, strict=True))
    output = drawn.made("eval", EVAL=str(labelled))
    assert f"{right} of {COUNT}" in output and "another order" not in output
    (report,) = re.findall(r"report: (\S+)$", output, re.MULTILINE)
    folder = (drawn.path / report).parent
    given = {row["item"]: row["answer"] for row in csv.DictReader((folder / "answers.csv").open())}
    names = [str(path.relative_to(labelled)) for path in files]
    assert given == dict(zip(names, expected, strict=True))
    results = json.loads((folder / "results.json").read_text())
    assert results["original"]["what"] == "PyTorch"
    assert results["original"]["same_answers"] == COUNT
    assert {path.name for path in folder.iterdir()} == {
        *("report.html", "results.json", "answers.csv", "reliability.png")
    }


def test_labels_in_another_order_are_found(drawn: Project, labelled: Path, tmp_path: Path) -> None:
    """Here the data's, which looks the same as if the network's were."""
    lines = [
        f"{path},{LABELS[(LABELS.index(path.parent.name) + 3) % len(LABELS)]}"
        for path in labelled.glob("*/*.png")
    ]
    (tmp_path / "val.csv").write_text("\n".join(["file,label", *lines]))
    output = drawn.made("eval", EVAL=str(tmp_path / "val.csv"))
    assert "another order than LABELS" in output
    (written,) = re.findall(r"in (build/eval/\S+/labels.txt)", output)
    shifted = (drawn.path / written).read_text().splitlines()
    assert shifted == [LABELS[(number + 3) % len(LABELS)] for number in range(len(LABELS))]


@pytest.mark.rare
def test_photos_are_called_what_pytorch_calls_them(
    drawn: Project, assets: Path, tmp_path: Path
) -> None:
    """Parts of labelled photos, asked of a network with real weights."""
    for label, name in ((504, "mug.jpg"), (817, "car.jpg"), (23, "vulture.jpeg")):
        (tmp_path / "val" / str(label)).mkdir(parents=True)
        photo = Image.open(assets / "images" / name).convert("RGB")
        photo.thumbnail((480, 480))
        for number in range(8):
            left, up = number * photo.width // 16, number * photo.height // 20
            part = photo.crop((left, up, photo.width - left // 2, photo.height - up // 3))
            part.save(tmp_path / "val" / str(label) / f"{number}.png")
    weights = str(assets / "weights" / "mobilenet_v2_imagenet.safetensors")
    network = torchvision.models.mobilenet_v2()
    network.load_state_dict(load_file(weights))
    prepare = torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
    right = 0
    with torch.inference_mode():
        for path in tmp_path.glob("val/*/*.png"):
            scores = network.eval()(prepare(Image.open(path))[None])
            right += int(scores.argmax()) == int(path.parent.name)
    given = {"ARCH": "mobilenet_v2", "WEIGHTS": weights, "PRECISION": "fp32"}
    drawn.made("add-model", NAME="photos", **given)
    val = str(tmp_path / "val")
    found = json.loads(drawn.made("eval", MODEL="photos", EVAL=val, JSON="1"))
    assert 8 < right < 24, "some are hard"
    assert found["right"]["value"] == right / 24
    assert (found["original"]["what"], found["original"]["same_answers"]) == ("PyTorch", 24)
    drawn.made("remove-model", NAME="photos")


def spoil(weights: Path, out: Path, noise: float) -> Path:
    """Weights of the same network, which then is wrong more often."""
    generator = torch.Generator().manual_seed(0)
    state = load_file(weights)
    for name, tensor in state.items():
        if name.endswith("weight") and tensor.ndim > 1:
            state[name] = tensor + noise * tensor.std() * torch.randn(
                tensor.shape, generator=generator
            )
    save_file(state, out)
    return out


@pytest.mark.rare
def test_a_rollout_is_judged_by_labelled_pictures(
    drawn: Project, labelled: Path, trained: Path, tmp_path: Path
) -> None:
    first = drawn.served_version.name
    worse = spoil(trained, tmp_path / "worse.safetensors", 0.6)
    drawn.made("publish", WEIGHTS=str(worse), EVAL=str(labelled))  # not what was named before
    refused = drawn.make("rollout", EVAL=str(labelled))
    (line,) = error_lines(refused.stderr)
    assert "MAX_DROP=1 is the most; it lost drawn " in line and "ANYWAY=1" in line
    assert drawn.served_version.name == first
    assert "points worse, with 99% certainty, after " in drawn.made("history")

    # Taken where so much is allowed; and what comes after it is better.
    output = drawn.made("rollout", MAX_DROP="99")
    (asked,) = re.findall(rf"points worse, with 99% certainty, after (\d+) of {ITEMS}", output)[:1]
    assert int(asked) < 20 and "not proved" not in output  # it ends as soon as it is certain
    output = drawn.made("rollout", VERSION=first)
    assert "points better, with 99% certainty" in output

    # The same answers, to so few pictures.
    drawn.made("publish", WEIGHTS="default", MAX_MEGAPIXELS="40")
    output = drawn.made("rollout")
    assert f"cannot tell whether it is within MAX_DROP=1 after {ITEMS} of {ITEMS} items" in output
    assert "more would do" in output
    drawn.made("publish", WEIGHTS="default", MAX_MEGAPIXELS="41")
    output = drawn.made("rollout", MAX_DROP="5")
    assert re.search(
        rf"at most \d\.\d points worse, with 99% certainty, after \d+ of {ITEMS}", output
    )
    drawn.made("publish", WEIGHTS="default", MAX_MEGAPIXELS="42")
    assert "not proved: how right it is" in drawn.made("rollout", EVAL="none")


def test_how_a_network_wants_pictures_is_found(
    drawn: Project, labelled: Path, trained: Path, tmp_path: Path
) -> None:
    """Levels from 0 to 255, which its file does not say."""
    module = networks.build(Torchvision("drawn", str(trained))).module
    scale = torch.nn.Conv2d(3, 3, 1)
    with torch.no_grad():
        scale.weight.copy_(torch.eye(3).view(3, 3, 1, 1) / (0.25 * 255))
        scale.bias.fill_(-2)  # (level / 255 - 0.5) / 0.25
    example = torch.zeros(1, 3, 48, 48)
    torch.onnx.export(torch.nn.Sequential(scale, module).eval(), (example,), tmp_path / "t.onnx")
    (tmp_path / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    words = {"NAME": "things", "ONNX": str(tmp_path / "t.onnx"), "EVAL": str(labelled)}
    output = drawn.made("add-model", **words, LABELS=str(tmp_path / "labels.txt"))
    assert re.search(r"levels from 0 to 255[^;]*: 9\d% right", output)
    assert "another order" not in output
    recipe = yaml.safe_load((drawn.path / "own" / "recipes" / "things.yaml").read_text())
    assert recipe["pictures"]["scale"] == 1
    found = json.loads(drawn.made("eval", MODEL="things", JSON="1"))  # on what it was added with
    assert found["right"]["value"] > 0.85
    assert found["original"]["what"] == "t.onnx"
