"""torchvision, importable beside a CPU-only torch too: `from vision import torchvision`."""

from __future__ import annotations

from typing import Any

import torch


def _import_torchvision() -> Any:
    """torchvision of PyPI is built beside CUDA torch; next to a CPU-only torch its import stops at
    two operators for detection that no classifier uses. Declaring them is enough."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "Meta")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _import_torchvision.library = library  # type: ignore[attr-defined]  # or it is undone
    import torchvision

    return torchvision


torchvision = _import_torchvision()
