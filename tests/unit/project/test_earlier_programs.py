"""Programs in own/ and in published versions are of the release that wrote them: what they import
of bundle_serving stays there, whatever it is called now."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.project import ROOT

NAMES = (
    "onnxruntime_engine.beside",
    "openvino_engine.Engine.beside",
    "step_reports.reported",
)
OF_KINDS = {
    # PyTriton is not built for every Python.
    "callable": ("callables.load", "callables.Instance") if find_spec("pytriton") else (),
    "detection": ("detection.Detection",),
    "segmentation": ("segmentation.Segmentation",),
    "video": ("smoothing.Streams",),
    "sound": ("sounds.Hearing", "wav.SoundError"),
    "cascade": ("cascade.Cascade",),
    "text": ("texts.to_tokens",),
}
THERE = [
    name for kind, names in OF_KINDS.items() if (ROOT / "kinds" / kind).is_dir() for name in names
]


@pytest.mark.parametrize("name", [*NAMES, *THERE])
def test_what_earlier_programs_import_is_still_there(name: str) -> None:
    module, *path = name.split(".")
    found = import_module(f"bundle_serving.{module}")
    for part in path:
        found = getattr(found, part)
    assert callable(found)
