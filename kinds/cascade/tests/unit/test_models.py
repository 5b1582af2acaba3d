"""What its models are made for."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_serving.pictures import Transform
from scripts.artefacts.manifest import Torchvision
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository.archive import Version
from scripts.server.wanted_settings import settings_of
from scripts.settings.settings import DEFAULTS, Settings


def test_its_plan_takes_the_shapes_that_the_recipe_says(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("cascade").recipe
    shapes = recipe.shapes(Workspace(tmp_path), Settings(DEFAULTS))  # which it does not ask
    assert shapes["minShapes"] == "input:1x3x224x224"


def test_where_its_weights_are_not_its_own_setting_is_advised(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("cascade").recipe
    settings = Settings(DEFAULTS | {"CASCADE": str(tmp_path / "none.pth")})
    export = recipe.export(settings, CPU)
    assert export and "--setting=CASCADE" in export.words
    with pytest.raises(UserError, match="no weights file") as refused:
        export.spec.identity()
    assert refused.value.remedy.startswith("give CASCADE=")
    assert "CASCADE=random" in Torchvision("mobilenet_v2", setting="CASCADE").ways_out
    assert "ARCH=drawn" in Torchvision().ways_out


def test_a_large_network_of_pictures_that_are_not_square_is_refused(tmp_path: Path) -> None:
    recipe = pipelines.find_pipeline("cascade").recipe
    served = tmp_path / "preprocessing" / "1" / "transform.json"
    served.parent.mkdir(parents=True)
    served.write_text(Transform(resize=256, crop=(224, 320)).dump())
    made = Mock(**{"manifest.transform": {"crop": 224}})
    with pytest.raises(UserError, match="224x224 and 320x224 pixels"):
        recipe.require(made, Settings(DEFAULTS), tmp_path)


def test_its_live_versions_precision_stays() -> None:
    pipeline, server = pipelines.find_pipeline("cascade"), {"PRECISION": "auto"}
    live = Version(pipeline, 2, "now", {"CASCADE": "default", "PRECISION": "fp32"}, {}, {})
    assert settings_of(pipeline, server, None).precision == "auto"
    assert settings_of(pipeline, server, live).precision == "fp32"
