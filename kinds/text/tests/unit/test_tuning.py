"""What `make tune` varies of a pipeline of texts."""

from pathlib import Path
from typing import Any

from scripts.recipes import pipelines
from scripts.recipes.layout import Share
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import flavour
from scripts.tuning.hardware import hardware_of
from scripts.tuning.search import OnGpu


def test_copies_that_no_setting_asks_for_are_not_varied(tmp_path: Path) -> None:
    """The network of texts is there once."""
    settings = Settings(DEFAULTS | {"CORES": "2", "NETWORK_INSTANCES": "3"})
    stack, texts = flavour.stack("gpu", settings), pipelines.find_pipeline("sentiment")
    hardware = hardware_of(stack, settings, texts, tmp_path)
    plan: Any = None
    assert "network" not in hardware.axes({"fp16": plan})
    assert hardware.start({"fp16": plan}) == OnGpu("fp16", Share(1, 1), Share(2, 2))
