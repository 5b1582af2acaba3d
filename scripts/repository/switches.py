"""Triton's own switches: what a recipe sets in its models' configs, over what the bundle writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.base.errors import UserError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from bundle_serving.protocol.messages import ModelConfig
    from scripts.recipes.recipe import Recipe

# The rest is what the bundle itself relies on: names, tensors, versions, steps.
OFFERED = ("dynamic_batching", "instance_group", "model_warmup", "optimization", "parameters")


def require(recipe: Recipe) -> None:
    """Raises UserError if Triton's grammar has no such switches."""
    if not recipe.triton:
        return
    from bundle_serving.protocol.messages import ModelConfig

    for model, wanted in recipe.triton.items():
        if model not in recipe.members:
            raise UserError(
                f"triton: {model} is not a model of {recipe.ensemble}",
                f"choose from {', '.join(sorted(recipe.members))}",
            )
        for name in wanted:
            if name not in OFFERED:
                raise UserError(
                    f"triton: {model} sets {name}, which is not a switch",
                    f"choose from {', '.join(OFFERED)}",
                )
        switch(recipe, ModelConfig(name=model))


def switch(recipe: Recipe, config: ModelConfig) -> bool:
    """Returns whether there is anything to set."""
    from google.protobuf import json_format

    wanted = recipe.triton.get(config.name, {})
    try:
        _set(config, wanted)
    except json_format.ParseError as fault:
        raise UserError(
            f"triton: {config.name}: {' '.join(str(fault).split())}",
            "see Triton's model_config.proto for its fields",
        ) from None
    return bool(wanted)


def _set(message: Message, wanted: Mapping[str, Any]) -> None:
    """A part of a part is set by itself; a list takes the place of the one that was there."""
    from google.protobuf import json_format

    for name, value in wanted.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        entries = bool(field and field.message_type and field.message_type.GetOptions().map_entry)
        if field and field.message_type and not field.is_repeated and isinstance(value, Mapping):
            getattr(message, name).SetInParent()
            _set(getattr(message, name), value)
        else:
            parsed = json_format.ParseDict({name: value}, type(message)())
            if not entries:
                message.ClearField(name)
            message.MergeFrom(parsed)
