"""The pipeline that says what each pixel belongs to, held against torchvision's own network."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bundle_client import Client, PictureRefused
from kinds.segmentation.serving.agreement_of_masks import of_masks
from kinds.segmentation.tests.by_torchvision import LRASPP, masks_by_torchvision, of_mixed_shapes
from tests.project import Project


def test_pixels_are_of_torchvisions_classes(with_segmentation: Project, tmp_path: Path) -> None:
    """Of pictures of mixed sizes, at the same time."""
    from kinds.segmentation import segmenters
    from kinds.segmentation.export import Segmenter

    photos = of_mixed_shapes(tmp_path)
    expected = masks_by_torchvision(segmenters.build(Segmenter(LRASPP, "random")), photos)
    with Client(with_segmentation.http) as client, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(client.segment, photos))
    agreement = of_masks(expected, [each.mask[None] for each in answers])
    assert agreement.top1_equal == len(photos) > 5 and agreement.max_difference < 0.001, agreement
    for each in answers:
        counts = np.bincount(each.mask.ravel())
        assert {area.index: area.share for area in each.areas} == {
            index: pytest.approx(count / each.mask.size)
            for index, count in enumerate(counts)
            if count
        }


def test_how_right_its_masks_are(with_segmentation: Project, tmp_path: Path) -> None:
    """On masks that it has made itself."""
    words = {"MODEL": "segmentation", "EVAL": str(label(with_segmentation, tmp_path))}
    found = json.loads(with_segmentation.made("eval", **words, JSON="1"))
    assert found["items"] == 3 and found["figures"]["mIoU"]["value"] > 0.999


@pytest.mark.rare
def test_a_candidate_is_judged_by_its_masks(with_segmentation: Project, tmp_path: Path) -> None:
    data, words = label(with_segmentation, tmp_path), {"MODEL": "segmentation"}
    with_segmentation.made("publish", **words, MAX_MEGAPIXELS="41")
    lenient = {"WATCH_SECONDS": "5", "MAX_P99_RATIO": "1000"}
    output = with_segmentation.made("rollout", **words, **lenient, EVAL=str(data))
    assert "on labelled data: mIoU +0.0 points" in output and "not proved" not in output
    assert "mIoU 100.0%" in with_segmentation.made("history", **words)
    with_segmentation.made("rollback", **words, **lenient)


def label(project: Project, folder: Path) -> Path:
    """Pictures, with what the pipeline finds in them."""
    for name in ("photos", "images", "masks"):
        (folder / name).mkdir()
    with Client(project.http) as client:
        for photo in of_mixed_shapes(folder / "photos")[:3]:
            photo.rename(folder / "images" / photo.name)
            mask = client.segment(folder / "images" / photo.name).mask
            Image.fromarray(mask).save(folder / "masks" / f"{photo.stem}.png")
    return folder


def test_what_is_refused(with_segmentation: Project, tmp_path: Path) -> None:
    Image.new("RGB", (50, 200)).save(tmp_path / "strip.png")
    with Client(with_segmentation.http) as client:
        with pytest.raises(PictureRefused, match="at most 3 times as many as its short one"):
            client.segment(tmp_path / "strip.png")
        with pytest.raises(PictureRefused, match="not a readable picture"):
            client.segment(b"no picture at all")


def test_the_command_prints_and_colours(with_segmentation: Project, tmp_path: Path) -> None:
    photo, out = of_mixed_shapes(tmp_path)[0], tmp_path / "coloured.png"
    words = {"IMG": str(photo), "OUT": str(out)}
    told = json.loads(with_segmentation.made("segment", JSON="1", **words).splitlines()[-1])
    assert told["source"] == str(photo) and len(told["areas"]) > 1
    assert sum(area["share"] for area in told["areas"]) == pytest.approx(1, abs=1e-4)
    assert Image.open(out).size == Image.open(photo).size
    assert out.read_bytes() != photo.read_bytes()
    table = with_segmentation.made("segment", TOP="1", IMG=str(photo)).splitlines()
    assert len(table) == 2 and f"{told['areas'][0]['label']}  " in table[1]
