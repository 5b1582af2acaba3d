"""What renderings of commands share: a server, and commands run without what they would ask."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bundle_serving.address import Address
from scripts.base.paths import ROOT
from scripts.program import verbs
from scripts.recipes.layout import CPU

STEPS = ("sentiment_preprocessing", "resnet50_onnx", "sentiment_postprocessing")
PIPELINE = "ensemble_python_resnet50"
SERVER = Address("127.0.0.1", 8000)
MODELS = ("ensemble_python_resnet50", *STEPS)
VERSION: Any = SimpleNamespace(
    network="mobilenet_v2",
    what="mobilenet_v2, weights mobilenet_v2_imagenet.safetensors, bf16",
    title="version 12",
    describe=lambda: "version 12: mobilenet_v2, weights mobilenet_v2_imagenet.safetensors, bf16",
    evaluated=None,
    number=12,
    precision="bf16",
    pipeline=SimpleNamespace(ensemble=PIPELINE, is_main=False, option="", recipe=None),
    serving=f"{PIPELINE}, serving mobilenet_v2",
    engine=CPU,
    workspace=SimpleNamespace(
        onnx=ROOT,
        decision={"precision": "bf16", "why": "the fastest of those that pass the comparison"},
    ),
)
KNOWN: Any = SimpleNamespace(
    flavour="cpu",
    http=SERVER,
    shown=(SERVER, Address("127.0.0.1", 8001)),
    settings_at_start=None,
    settings={},
    main=PIPELINE,
)
EVENTS = [{"at": time.time(), "did": f"{PIPELINE} was not loaded, though it should be: loaded it"}]
STACK: Any = SimpleNamespace(many=None, keeper_state=lambda: {"events": EVENTS})
PHOTO = "holiday photos of 2026/on the beach/IMG_20260704_123456789_HDR.jpg"


def command(name: str) -> Any:
    return import_module(verbs.read()[name].module)


def run(name: str, others: dict[str, Any]) -> None:
    with replaced(others):
        command(name).main()


@contextmanager
def replaced(others: dict[str, Any]) -> Iterator[None]:
    """With other functions in the place of those that ask or read."""
    with ExitStack() as held:
        for each, by in others.items():
            held.enter_context(patch(each, by))
        yield
