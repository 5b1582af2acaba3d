"""A network of TensorFlow's or Keras's, from its file to a label."""

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle_client import Client
from scripts import bootstrap
from tests.end_to_end.own.test_own_main import fresh, require_alone
from tests.project import ROOT, Project, error_lines

__all__ = ["fresh"]  # a fixture

LABELS = ["robin", "wren", "crow"]
AS_THEY_ARE = "fit: squash, resize: 32, crop: 32, scale: 1, mean: [0, 0, 0], std: [1, 1, 1]"

# In a process of its own: it takes seconds and a gigabyte to import.
MAKE = """
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(0)
wide = keras.initializers.RandomNormal(stddev=0.3)
network = keras.Sequential([
    keras.Input((32, 32, 3)),
    layers.Rescaling(1 / 127.5, -1),
    layers.Conv2D(8, 3, strides=4, activation="relu", padding="same"),
    layers.BatchNormalization(),
    layers.DepthwiseConv2D(3),
    layers.Flatten(),
    layers.Dense(3, activation="softmax", kernel_initializer=wide),
])
random = np.random.default_rng(0)
colours = random.integers(0, 256, (8, 1, 1, 3))
pixels = (0.5 * colours + random.integers(0, 128, (8, 32, 32, 3))).astype(np.uint8)
np.savez("asked.npz", pixels=pixels, expected=network(pixels.astype(np.float32)).numpy())
network.save("birds.keras")
network.export("birds", verbose=False)
code = keras.Sequential([
    keras.Input((32, 32, 3)), layers.Lambda(lambda pixels: 2 * pixels), layers.Flatten()
])
code.save("code.keras")
code.save("code.h5")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    install = [sys.executable, "-m", "scripts.bootstrap", "tensorflow"]
    subprocess.run(install, cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-c", MAKE], cwd=folder, check=True)
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    return folder


@pytest.fixture
def own(served: Project) -> Iterator[Project]:
    kept = served.settings.keys() - {"ARCH", "WEIGHTS"}
    yield (project := replace(served, settings={name: served.settings[name] for name in kept}))
    project.make("remove-model", NAME="birds")


@pytest.mark.rare
@pytest.mark.parametrize("name", ["birds", "birds.keras"])
def test_it_answers_as_in_tensorflow(own: Project, made: Path, name: str) -> None:
    own.made(
        "add-model",
        NAME="birds",
        FROM=str(made / name),
        LABELS=str(made / "labels.txt"),
        PICTURES=AS_THEY_ARE,
        TRUST="1",
    )
    require_same_answers(own, made)


@pytest.mark.rare
def test_it_is_the_main_pipeline(fresh: Project, made: Path) -> None:
    words = {"FROM": str(made / "birds"), "LABELS": str(made / "labels.txt"), "TRUST": "1"}
    fresh.made("up", **words, PICTURES=AS_THEY_ARE)
    require_alone(fresh, "birds")
    require_same_answers(fresh, made)


def require_same_answers(project: Project, made: Path) -> None:
    asked = np.load(made / "asked.npz")
    assert len({*asked["expected"].argmax(axis=1)}) > 1
    with Client(project.http, model="birds") as client:
        for pixels, expected in zip(asked["pixels"], asked["expected"], strict=True):
            Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
            found = client.classify(file.getvalue(), top=3).labels
            assert found[0].label == LABELS[expected.argmax()]
            for label in found:
                assert abs(label.probability - expected[label.index]) < 0.01


@pytest.mark.rare
@pytest.mark.parametrize("name", ["code.keras", "code.h5"])
def test_code_in_a_file_is_not_run(own: Project, made: Path, name: str) -> None:
    refused = own.make("add-model", NAME="birds", FROM=str(made / name), TRUST="1")
    (line,) = error_lines(refused.stderr)
    assert refused.returncode and "cannot be read by TensorFlow" in line and "Lambda" in line
    assert not (own.path / "own" / "networks" / "birds").exists()


@pytest.mark.skipif(bootstrap.is_installed("tensorflow"), reason="TensorFlow is installed here")
def test_without_tensorflow_it_is_said_how_to_do_it_elsewhere(tmp_path: Path) -> None:
    project = Project.copy(tmp_path / "alone", PIP_INDEX_URL="http://127.0.0.1:9", PIP_RETRIES="0")
    for name in ("ARCH", "WEIGHTS"):
        project.settings.pop(name, None)
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "saved_model.pb").touch()
    refused = project.make("add-model", NAME="birds", FROM=str(tmp_path / "birds"), TRUST="1")
    (line,) = error_lines(refused.stderr)
    assert refused.returncode and "needs TensorFlow, which cannot be installed here" in line
    assert "tf2onnx.convert --saved-model" in line
    assert "310 MB" in refused.stdout + refused.stderr
