"""A specification and its step's arguments are the same."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.artefacts import samples
from scripts.artefacts.exporting import as_words, call, unless_it_fits
from scripts.artefacts.manifest import NOTHING, of_samples
from scripts.intake import metadata
from scripts.steps import quantise
from tests.project import picture


@dataclass(frozen=True)
class Spec:
    weights: str
    how: Mapping[str, Any]
    names: tuple[str, ...]
    classes: int
    threshold: float
    precision: str = "fp32"
    labels: Path | None = None
    forest: bool = False

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        return {"weights": self.weights}


FOUND: list[tuple[Spec, Path]] = []


def note(spec: Spec, out: Path) -> None:
    FOUND.append((spec, out))


SHORT = Spec("random", {}, ("cat",), 1, 0.5)
LONG = Spec("/a b.pth", {"side": 2}, ("a", "b c"), 2, 0.1, "fp16", Path("/l.txt"), True)


@pytest.mark.parametrize("spec", [SHORT, LONG])
def test_what_is_said_is_understood(spec: Spec, tmp_path: Path) -> None:
    said = [*map(str, as_words(spec)), "--out", str(tmp_path / "onnx")]
    call(unless_it_fits(note), said, precision=("fp32", "fp16"))
    assert FOUND.pop() == (spec, tmp_path / "onnx")


def test_files_are_told_from_words() -> None:
    """For a container, which sees them elsewhere."""
    assert as_words(SHORT)[:1] == ["--weights=random"]
    assert [each for each in as_words(LONG) if isinstance(each, Path)] == [
        Path("/a b.pth"),
        Path("/l.txt"),
    ]


def ask(
    network: Path, load: tuple[str, ...] = (), size: tuple[int, int] | None = None,
    data: tuple[Path, ...] = (), limit: float = 120, any_size: bool = False, output: str = "",
) -> dict[str, Any]:  # fmt: skip
    return locals()


def test_a_function_is_asked_as_it_would_be_called() -> None:
    given: dict[str, Any] = {
             "network": Path("/n.onnx"), "load": ("a", "b"), "size": (2, 3), "limit": 0.5,
             "data": (Path("/d 1"), Path("/d 2")), "any_size": True, "output": "-x"}  # fmt: skip
    words = as_words(given)
    assert [each for each in words if isinstance(each, Path)] == [given["network"], *given["data"]]
    assert call(ask, [*map(str, words)]) == given
    little = as_words(given | {"load": (), "data": (), "size": None, "any_size": False})
    assert call(ask, [*map(str, little)]) == ask(Path("/n.onnx"), limit=0.5, output="-x")


@dataclass(frozen=True)
class Other:
    classes: int  # as Spec's
    side: int


def ask_both(spec: Spec, other: Other | None = None) -> tuple[Spec, Other | None]:
    return spec, other


def test_two_are_told_together() -> None:
    words = [*map(str, as_words(SHORT))]
    assert call(ask_both, words) == (SHORT, None)
    assert call(ask_both, [*words, "--side", "3"]) == (SHORT, Other(SHORT.classes, 3))


@pytest.mark.parametrize("words", [("--precision", "int4"), ("--classes", "two")])
def test_what_is_none_of_it_is_refused(words: tuple[str, str], tmp_path: Path) -> None:
    said = [*map(str, as_words(SHORT)), *words, "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        call(note, said, precision=("fp32", "fp16"))


def test_folders_of_photos_as_people_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a name that is no UTF-8, a link to what is gone, and what is too large for a photo."""
    monkeypatch.setattr(samples, "MOST_BYTES", 2**20)
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(picture())
    (tmp_path / "moved.jpg").symlink_to(tmp_path / "gone.jpg")
    (tmp_path / "large.jpg").write_bytes(picture() + bytes(2**20))
    assert len(samples.read(tmp_path, 9, "SAMPLES")) == 1
    before = of_samples(tmp_path), quantise.identify_photos(tmp_path)
    (tmp_path / "another.jpg").write_bytes(picture())
    after = of_samples(tmp_path), quantise.identify_photos(tmp_path)
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_a_processor_with_a_filter_that_nobody_knows() -> None:
    processor = {"size": 224, "do_normalize": False}
    assert metadata.of_hugging_face(processor | {"resample": 3})["interpolation"] == "bicubic"
    assert metadata.of_hugging_face(processor | {"resample": 9}) == {}


@pytest.mark.parametrize(("kind", "fit"), [("", "squash"), ("ViT", "squash"), ("CLIP", "crop")])
def test_a_processor_of_one_number(kind: str, fit: str) -> None:
    """As files of earlier days have it."""
    processor = {"size": 224, "feature_extractor_type": f"{kind}FeatureExtractor"}
    assert metadata.of_hugging_face(processor | {"do_normalize": False})["fit"] == fit
