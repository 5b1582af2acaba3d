"""torchvision, importable beside a CPU-only torch too: `from vision import torchvision`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch


def _import_torchvision() -> Any:
    """Where torchvision was built beside another torch (PyPI's beside one for CUDA, and ours is for
    CPUs alone), its extension does not load, and its import stops at two operators for detection
    that no classifier uses. Declaring them is enough; where the extension loads, it does."""
    found = find_spec("torchvision")
    try:
        torch.ops.load_library(Path(str(found and found.origin)).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _import_torchvision.library = library  # type: ignore[attr-defined]  # or it is undone
    import torchvision

    return torchvision


torchvision = _import_torchvision()
