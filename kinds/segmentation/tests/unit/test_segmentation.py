"""The classes of pixels: their shares, how masks are compared, and how they are drawn."""

import io
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle_client import Area
from bundle_serving.agreement import Bound, compare, of_answers
from bundle_serving.decoder import PIXELS, SIZE, gather
from bundle_serving.pictures import PictureError, Transform, to_pixels
from bundle_serving.repeated import Batch
from kinds.segmentation.export import Segmenter
from kinds.segmentation.serving.agreement_of_masks import SEGMENTATION
from kinds.segmentation.serving.segmentation import Segmentation
from scripts.recipes import drawing

WHOLE = Transform(52, 52, fit="whole", decode="full", longest=156)


def test_each_class_has_its_share_of_the_picture(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("__background__\ncat\ndog\n")
    masks = np.array([[[0, 0, 0, 1]], [[1, 1, 1, 1]]], np.uint8)
    answer = Segmentation.load(tmp_path).answer(masks)
    assert answer["SHARES"].tolist() == [[0.75, 0.25, 0], [0, 1, 0]]
    assert answer["LABELS"].tolist() == [[b"__background__", b"cat", b"dog"]] * 2


def test_masks_are_compared_by_their_pixels() -> None:
    reference = np.zeros((1, 10, 100), np.uint8)
    nine, eleven = reference.copy(), reference.copy()
    nine[0, 0, :9], eleven[0, 0, :11] = 1, 1
    same = compare(reference, nine, SEGMENTATION)
    assert same.top1_equal == 1 and same.max_difference == pytest.approx(0.009)
    assert "99% of the pixels equal on 1 of 1 pictures, at most 0.90% " in str(same)
    assert same.within(Bound(0.01)) and not same.within(Bound(0.001))
    others = of_answers([{"MASK": reference}], [{"MASK": eleven}])
    assert others.top1_equal == 0
    assert not of_answers([{"MASK": reference}], [{"MASK": reference[:, :5]}]).within(Bound(0.5))


@pytest.mark.parametrize(("size", "seen"), [((64, 48), (52, 69)), ((20, 60), (156, 52))])
def test_a_picture_is_seen_whole(size: tuple[int, int], seen: tuple[int, int]) -> None:
    assert to_pixels(png(size), WHOLE).shape == (3, *seen)


def test_a_strip_is_refused() -> None:
    with pytest.raises(PictureError, match=r"has 20x61 pixels, .* at most 3 times as many"):
        to_pixels(png((20, 61)), WHOLE)


def test_pictures_of_one_request_have_one_shape() -> None:
    pending = []
    for size in ((64, 48), (48, 64)):
        found: Future[Batch] = Future()
        found.set_result({PIXELS: to_pixels(png(size), WHOLE)[None], SIZE: np.array([size[::-1]])})
        pending.append(found)
    with pytest.raises(PictureError, match=r"differ in shape.*; send each in a request of its own"):
        gather(pending)
    assert gather(pending[:1]).shape == (1, 3, 52, 69)


def png(size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "white").save(file, "PNG")
    return file.getvalue()


def test_classes_are_coloured_and_named(tmp_path: Path) -> None:
    mask = np.zeros((10, 20), np.uint8)
    mask[5:, :10], mask[5:, 10:] = 3, 4
    found = [Area(0, "__background__", 0.5), Area(3, "cat", 0.25), Area(4, "tram", 0.25)]
    out = tmp_path / "coloured.png"
    drawing.save(png((400, 200)), out, lambda picture: drawing.areas(picture, mask, found))
    drawn = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert drawn.shape == (200, 400, 3)
    assert (drawn[:99, 200:] == 255).all()  # what belongs to no class
    left, right = drawn[150, 100], drawn[150, 300]
    assert np.abs(left - right).max() > 60
    assert (drawn[101:, :199] == left).all() and (drawn[101:, 201:] == right).all()
    assert (drawn[:40, :40].min(axis=2) < 200).any()  # the names


def test_what_the_user_gives_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no weights file") as refused:
        Segmenter("lraspp", str(tmp_path / "street.pth")).identity()
    assert "SEGMENTATION=random" in refused.value.remedy  # type: ignore[attr-defined]
