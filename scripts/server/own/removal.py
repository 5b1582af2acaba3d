"""Unloads a pipeline that is about to be removed."""

from __future__ import annotations

from scripts.recipes.pipelines import Pipeline
from scripts.server import extra
from scripts.server.triton import loading
from scripts.stacks import flavour
from scripts.stacks.state import State


def unload(pipeline: Pipeline, server: State | None) -> None:
    """Before its files go: removing those of a loaded model hangs its process."""
    recipe = pipeline.recipe
    if server and (many := flavour.many_of(server)):
        many.unload(server, recipe.ensemble)
    elif server:
        for model in (recipe.ensemble, *sorted(recipe.members)):
            loading.unload(server.grpc, model, extra.LOAD_TIMEOUT_S)
    extra.forget(recipe.ensemble)
