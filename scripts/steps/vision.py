"""torchvision, importable beside a CPU-only torch too: `from vision import torchvision`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch


def _import_torchvision() -> Any:
    """Where torchvision was built beside another torch (PyPI's beside one for CUDA, and ours is for
    CPUs alone), its extension does not load, and its import stops at two operators for detection.
    Declaring them is enough for classifiers, and detectors need the first; where the extension
    loads, it has both."""
    found = find_spec("torchvision")
    try:
        torch.ops.load_library(Path(str(found and found.origin)).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", _nms, "CPU")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _import_torchvision.library = library  # type: ignore[attr-defined]  # or it is undone
        from torchvision import extension

        extension._has_ops = lambda: True  # it looks for its own
    import torchvision

    return torchvision


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Which boxes stay, best first: none that overlaps a better one by more than that."""
    from torchvision.ops import box_iou

    left, kept = scores.argsort(descending=True, stable=True), []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        left = left[box_iou(boxes[best][None], boxes[left])[0] <= iou_threshold]
    return torch.stack(kept) if kept else left


torchvision = _import_torchvision()
