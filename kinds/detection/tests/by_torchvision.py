"""What torchvision's own code finds in pictures, and how a server is asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from benchmark.foreign.case import farthest
from bundle_serving.infer import Answer

if TYPE_CHECKING:  # which imports PyTorch
    from kinds.detection.detectors import Whole

SSDLITE = "ssdlite320_mobilenet_v3_large"


def boxes_by_torchvision(detector: Whole, photos: list[Path]) -> list[Answer]:
    """By its own code from the picture to the boxes, with enough of them to tell something."""
    expected = [detector.find(Image.open(photo)) for photo in photos]
    counts = [len(each["SCORES"][0]) for each in expected]
    assert min(counts) > 0 and len(set(counts)) > 3, counts
    return expected


def ask_for_boxes(http: str, model: str, *files: bytes) -> Answer:
    """In one request, padded to the same length."""
    import tritonclient.http

    longest = max(map(len, files))
    data = np.array([list(file.ljust(longest, b"\0")) for file in files], np.uint8)
    client = tritonclient.http.InferenceServerClient(http)
    try:
        tensor = tritonclient.http.InferInput("INPUT", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        answer = client.infer(model, [tensor])
        return {name: answer.as_numpy(name) for name in ("BOXES", "LABELS", "SCORES")}
    finally:
        client.close()


def assert_same_boxes(expected: Answer, found: Answer, threshold: float) -> None:
    """Within a pixel, and a hundredth: which only what is that near to the threshold may lack."""
    assert farthest(expected, found, threshold) <= 0.01, (expected, found)
