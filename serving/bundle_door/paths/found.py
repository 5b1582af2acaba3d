"""What a pipeline finds in a picture, as JSON: labels, boxes, or the areas of each class."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

from bundle_door.wire.inference import Signature, classes_of, values
from bundle_serving.protocol.kserve import pb

Found = dict[str, Any]

# By their first outputs, those that give no labels.
BOXES, AREAS = "BOXES", "MASK"
USUAL_LABELS = 5
SIDES = ("left", "top", "right", "bottom")


def list_outputs(signature: Signature, top: int | None) -> Sequence[Any]:
    """The outputs to ask for; none means all."""
    if signature.output in (BOXES, AREAS):
        return ()
    return [classes_of(signature.output, top or USUAL_LABELS)]


def read_answer(
    response: pb.ModelInferResponse, signature: Signature, top: int | None, mask: bool
) -> Found:
    if signature.output == BOXES:
        return {"boxes": _read_boxes(values(response))[:top]}
    if signature.output == AREAS:
        return _read_areas(response, top, mask)
    return {"labels": [read_label(entry) for entry in values(response)[signature.output]]}


def read_label(entry: str) -> Found:
    """From "probability:index:label", the classification extension's format."""
    probability, index, *name = entry.split(":", 2)
    return {"label": "".join(name), "probability": float(probability), "index": int(index)}


def _read_boxes(found: dict[str, list[Any]]) -> list[Found]:
    corners = iter(round(side, 2) for side in found["BOXES"])
    return [
        {"label": label, "score": round(score, 6), **dict(zip(SIDES, corners, strict=False))}
        for label, score in zip(found["LABELS"], found["SCORES"], strict=True)
    ]


def _read_areas(response: pb.ModelInferResponse, top: int | None, mask: bool) -> Found:
    """The largest first. Of the mask, a byte for each pixel's class, deflated, in base64."""
    at = [output.name for output in response.outputs].index(AREAS)
    height, width = response.outputs[at].shape[-2:]
    pixels = response.raw_output_contents[at]
    response.raw_output_contents[at] = b""  # not as a list of numbers as well
    found = values(response)
    areas = [
        {"label": label, "index": index, "share": round(share, 6)}
        for index, (label, share) in enumerate(zip(found["LABELS"], found["SHARES"], strict=True))
        if share
    ]
    areas.sort(key=lambda area: -area["share"])
    if not mask:
        return {"areas": areas[:top]}
    classes = base64.b64encode(zlib.compress(pixels, 1)).decode()
    return {
        "areas": areas[:top],
        "mask": {"height": height, "width": width, "classes": classes},
    }
