"""The settings that a command means: of the server, and of a pipeline's next version."""

import os
from collections.abc import Mapping
from pathlib import Path

from scripts.base.paths import IN_CONTAINERS, ROOT
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository.archive import Version
from scripts.settings.settings import Settings


def settings_of(pipeline: Pipeline, server: Mapping[str, str], seed: Version | None) -> Settings:
    """What the user sets now, or else the live version's settings. A setting in .env that the main
    pipeline has too is meant for the main pipeline."""
    if pipeline.is_main:
        return fill_from_version(Settings.load(), pipeline, seed, server)
    own = pipeline.recipe.settings
    of_the_server = {name: value for name, value in server.items() if name not in own}
    now = Settings.load(not_in_dotenv={*own} & {*pipelines.main().recipe.settings})
    return fill_from_version(now, pipeline, seed, of_the_server)


def fill_from_version(
    now: Settings, pipeline: Pipeline, seed: Version | None, server: Mapping[str, str] | None = None
) -> Settings:
    """What the user sets now, or else the live version's settings, or the recipe's."""
    before, recipe = seed.own_settings if seed else {}, pipeline.recipe
    own = {*recipe.settings, *recipe.deciding()}
    earlier = {name: _find_here(value) for name, value in before.items() if name in own}
    return now.fill_from({**(server or {})} | recipe.defaults() | earlier)


def _find_here(value: str) -> str:
    """Of a version that Compose alone has made, in whose containers this checkout is elsewhere."""
    here = ROOT / value.removeprefix(IN_CONTAINERS)
    is_there = value.startswith(IN_CONTAINERS) and not Path(value).exists() and here.exists()
    return str(here) if is_there else value


def settings_of_server(pipeline: Pipeline) -> Settings:
    """The settings for the server and its main pipeline, from a command about this pipeline."""
    own = () if pipeline.is_main else pipeline.recipe.settings
    return Settings.load({name: word for name, word in os.environ.items() if name not in own})
