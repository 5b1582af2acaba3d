"""Programs in own/ and in published versions are of the release that wrote them: what they import
of bundle_serving stays there, whatever it is called now."""

from importlib import import_module

import pytest

NAMES = (
    "onnxruntime_engine.beside",
    "openvino_engine.Engine.beside",
    "step_reports.reported",
    *("callables.load", "callables.Instance", "detection.Detection", "segmentation.Segmentation"),
    *(
        "smoothing.Streams",
        "sounds.Hearing",
        "wav.SoundError",
        "cascade.Cascade",
        "texts.to_tokens",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_earlier_programs_import_is_still_there(name: str) -> None:
    module, *path = name.split(".")
    found = import_module(f"bundle_serving.{module}")
    for part in path:
        found = getattr(found, part)
    assert callable(found)
