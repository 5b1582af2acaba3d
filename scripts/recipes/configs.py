"""Triton's configs of models, parsed: read from their files, and what is set in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.base.errors import UserError
from scripts.recipes import folders
from scripts.recipes.layout import GPU, Engine, Share

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from bundle_serving.protocol.kserve import ModelConfig

LABELS = "labels.txt"
# Triton's own switches that a recipe may set, over what the bundle writes. The rest is what the
# bundle itself relies on: names, tensors, versions, steps.
SWITCHES = ("dynamic_batching", "instance_group", "model_warmup", "optimization", "parameters")

Triton = Mapping[str, Mapping[str, Any]]  # what a recipe sets, by model


def read(path: Path) -> ModelConfig:
    # Half a second to import, and commands that only ask read no config.
    from google.protobuf import text_format

    from bundle_serving.protocol.kserve import ModelConfig

    try:
        return text_format.Parse(path.read_text(), ModelConfig())
    except (OSError, text_format.ParseError) as fault:
        raise UserError(
            f"{'/'.join(path.parts[-3:])} is not a valid model config ({fault})",
            "fix it, or restore it with git checkout",
        ) from None


def read_model(model: str) -> ModelConfig:
    return read(folders.model_folder(model) / "config.pbtxt")


def set_share(member: Any, machine: Share) -> None:
    """Instances and threads."""
    member.instance_group[0].count = machine.instances
    set_parameters(member, threads=machine.threads)


def drop_delay(member: Any, engine: Engine) -> bool:
    """Of a config whose instances would starve: with a queue that has priorities or limits, Triton
    up to 2.71 takes instances for busy for ever, once it has merged two batches that waited for
    more requests (triton-inference-server/server 8870). On a GPU there may be several of them."""
    batching = member.dynamic_batching
    several = _may_be_on_gpus(member, engine) or _count_instances(member) > 1
    if not (batching.max_queue_delay_microseconds and _is_limited(batching) and several):
        return False
    batching.ClearField("max_queue_delay_microseconds")
    return True


def drop_queue(member: Any, engine: Engine) -> bool:
    """Of a model in one process, on a CPU. Where a queue has priorities or limits, Triton hands out
    a batch only to a process that waits for one, and does not look again when the only process
    does: a request that came while it ended its last one then waits for the next request, or half a
    second (`default_wait_microseconds` in its dynamic_batch_scheduler.cc)."""
    batching = member.dynamic_batching
    needs_gpu = any(each.kind == each.KIND_GPU for each in member.instance_group)
    several = needs_gpu or _may_be_on_gpus(member, engine) or _count_instances(member) > 1
    if several or not _is_limited(batching):
        return False
    for field in ("priority_levels", "default_priority_level", "default_queue_policy"):
        batching.ClearField(field)
    batching.ClearField("priority_queue_policy")
    return True


def _is_limited(batching: Any) -> bool:
    return bool(batching.priority_levels or batching.HasField("default_queue_policy"))


def _may_be_on_gpus(member: Any, engine: Engine) -> bool:
    return engine is GPU and any(each.kind != each.KIND_CPU for each in member.instance_group)


def _count_instances(member: Any) -> int:
    return sum(max(1, each.count) for each in member.instance_group)


def set_parameters(member: Any, **values: object) -> None:
    for key, value in values.items():
        member.parameters[key].string_value = str(value)


def set_type(tensor: Any, name: str) -> None:
    tensor.MergeFrom(type(tensor)(data_type=f"TYPE_{name}"))


def set_dims(member: Any, sizes: Mapping[str, Sequence[int]]) -> None:
    """Of the tensors with these names, and of their warm-up, where one of any size has 1. Without
    dims, it keeps those that it has."""
    sizes = {name: dims for name, dims in sizes.items() if dims}
    for tensor in (*member.input, *member.output):
        if tensor.name in sizes:
            tensor.dims[:] = sizes[tensor.name]
    for warm in member.model_warmup:
        for name in sizes.keys() & warm.inputs.keys():
            warm.inputs[name].dims[:] = [max(1, size) for size in sizes[name]]


def set_warmup_file(member: Any, file: Path) -> None:
    """In place of the template's, beside which it lies."""
    if not file.is_file():
        name = "/".join(file.parts[-3:])
        raise UserError(f"there is no {name}", "put the recipe's file for the warm-up there")
    for warm in member.model_warmup:
        for tensor in warm.inputs.values():
            if tensor.input_data_file:
                warm.name, tensor.input_data_file = file.stem, file.name
                tensor.dims[:] = [file.stat().st_size]


def require_switches(triton: Triton, ensemble: str, members: Collection[str]) -> None:
    """Raises UserError if Triton's grammar has no such switches."""
    if not triton:
        return
    from bundle_serving.protocol.kserve import ModelConfig

    for model, wanted in triton.items():
        if model not in members:
            raise UserError(
                f"triton: {model} is not a model of {ensemble}",
                f"choose from {', '.join(sorted(members))}",
            )
        for name in wanted:
            if name not in SWITCHES:
                raise UserError(
                    f"triton: {model} sets {name}, which is not a switch",
                    f"choose from {', '.join(SWITCHES)}",
                )
        set_switches(ModelConfig(name=model), triton)


def set_switches(member: ModelConfig, triton: Triton) -> bool:
    """Returns whether there is anything to set."""
    from google.protobuf import json_format

    wanted = triton.get(member.name, {})
    try:
        _set(member, wanted)
    except json_format.ParseError as fault:
        raise UserError(
            f"triton: {member.name}: {' '.join(str(fault).split())}",
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
