"""What its models are made for, and how they are asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bundle_client import Client, TextRefused
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs, pipelines
from scripts.recipes.layout import CPU
from scripts.server.layouts import layout
from scripts.settings.settings import DEFAULTS, Settings


def test_its_plan_takes_the_shapes_that_the_recipe_says(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("sentiment").recipe
    shapes = recipe.shapes(Workspace(tmp_path), Settings(DEFAULTS))  # which it does not ask
    assert shapes == {
        "minShapes": "INPUT_IDS:1x8,ATTENTION_MASK:1x8",
        "optShapes": "INPUT_IDS:16x64,ATTENTION_MASK:16x64",
        "maxShapes": "INPUT_IDS:64x512,ATTENTION_MASK:64x512",
    }


def test_its_network_takes_no_more_than_the_step_before_makes(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("sentiment").recipe
    member = configs.read_model("sentiment_onnx")
    assert recipe.fit(member, Workspace(tmp_path), layout(Settings(DEFAULTS), CPU))
    assert member.parameters["most_numbers"].string_value == "512"


def test_a_label_with_a_comma_is_refused() -> None:
    recipe = pipelines.find_pipeline("sentiment").recipe
    with pytest.raises(ValueError, match=r"labels\.1"):
        type(recipe).model_validate(recipe.model_dump() | {"labels": ("bad", "good, fine")})


def test_a_refusal_of_the_servers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TextRefused("too long", "send less")

    monkeypatch.setattr(Client, "sentiment", refuse)
    recipe, server = pipelines.find_pipeline("sentiment").recipe, SimpleNamespace(known={})
    with pytest.raises(UserError, match="too long") as told:
        recipe.ask(cast(Any, server), ["What a day!"], {})
    assert told.value.remedy == "send less"
