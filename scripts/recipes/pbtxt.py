"""A model's config.pbtxt, formatted as a person would write it. Pure functions on text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scripts.recipes.layout import Share

if TYPE_CHECKING:  # which loads pydantic, and commands that only ask read no recipe
    from scripts.recipes.parts import Batch

NEWEST_VERSION = "version_policy { latest { num_versions: 1 } }"
EVERY_VERSION = "version_policy { all { } }"
# Beyond this many a request is refused at once; after this long its client has given up. Those of
# the second level wait for all of the first, which is the one of requests that name none.
MOST_WAITING, LONGEST_WAIT_S = 512, 30
MOST_WAITING_BEHIND = 128


def _policy(most: int, indent: str) -> str:
    timeout = LONGEST_WAIT_S * 1_000_000
    lines = (f"max_queue_size: {most}", f"default_timeout_microseconds: {timeout}")
    return "\n".join(indent + line for line in lines)


QUEUE_ENDS = f"""\
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy {{
{_policy(MOST_WAITING, " " * 4)}
  }}
  priority_queue_policy {{
    key: 2
    value {{
{_policy(MOST_WAITING_BEHIND, " " * 6)}
    }}
  }}
"""
QUEUED = f"dynamic_batching {{\n{QUEUE_ENDS}}}"
# Requests that arrive together share a batch; none waits for others. On a CPU larger batches take
# more memory and no less time.
MOST_TOGETHER = 16


def batches_form_themselves(most: int = MOST_TOGETHER) -> str:
    size = min(most, MOST_TOGETHER)
    return f"dynamic_batching {{\n  preferred_batch_size: [ {size} ]\n{QUEUE_ENDS}}}"


# Names of the inputs by which a model is told where a sequence begins and ends.
BEGINS, ENDS = "BEGINS", "ENDS"


def sequences(idle_s: float, most: int) -> str:
    """Requests of one sequence come to the model in their order; those of several, together. No
    CORRID: Triton copies a client's sequence_id that is a text into that tensor, whatever its
    length, and past the end of a number's."""
    flags = {BEGINS: "START", ENDS: "END"}
    controls = [
        f'    {{ name: "{name}" control [ {{ kind: CONTROL_SEQUENCE_{kind}'
        " int32_false_true: [ 0, 1 ] } ] }"
        for name, kind in flags.items()
    ]
    return (
        "sequence_batching {\n"
        f"  max_sequence_idle_microseconds: {round(idle_s * 1_000_000)}\n"
        "  control_input [\n" + ",\n".join(controls) + "\n  ]\n"
        f"  oldest {{ max_candidate_sequences: {most} }}\n"
        "}"
    )


LABELS = "labels.txt"


@dataclass(frozen=True)
class Tensor:
    name: str
    data_type: str
    dims: Sequence[int]
    ragged: str = ""  # why requests of different lengths may share a batch
    labels: str = ""  # the file that names the classes
    format: str = ""  # of a picture: FORMAT_NCHW
    optional: bool = False


@dataclass(frozen=True)
class Step:
    model: str
    inputs: Mapping[str, str]  # its tensor -> the ensemble's
    outputs: Mapping[str, str]


def config(comment: str, name: str, runs_by: str, max_batch_size: int, *blocks: str) -> str:
    head = (f'name: "{name}"', runs_by, f"max_batch_size: {max_batch_size}")
    return "\n".join([*(f"# {line}" for line in comment.splitlines()), *head, *blocks]) + "\n"


def program(
    comment: str,
    name: str,
    most: int,
    taken: Sequence[Tensor],
    given: Sequence[Tensor],
    *blocks: str,
) -> str:
    """A model in Python; the first block is its instances."""
    count, *others = blocks
    tensors = inputs(*taken), outputs(*given)
    head = (*tensors, NEWEST_VERSION, count, batches_form_themselves(most))
    return config(comment, name, backend("python"), most, *head, *others)


def onnx(
    comment: str, name: str, most: int, tensors: Sequence[str], count: int, warm: str, threads: int
) -> str:
    """A network on a CPU."""
    head = (*tensors, NEWEST_VERSION, instances(count, "CPU"), batches_form_themselves(most), warm)
    own = parameter("threads", str(threads))
    return config(comment, name, backend("onnxruntime"), most, *head, own)


def plan(
    comment: str, name: str, batch: Batch, tensors: Sequence[str], count: int, warm: str
) -> str:
    """A network on a GPU."""
    formed = preferred_batches(batch.preferred, batch.max_delay_us)
    head = (*tensors, NEWEST_VERSION, instances(count, "GPU"), formed, warm)
    return config(comment, name, platform("tensorrt_plan"), batch.max, *head)


def ensemble(
    comment: str,
    name: str,
    most: int,
    taken: Tensor,
    given: Sequence[Tensor],
    *each: Step,
    parameters: str = "",
) -> str:
    head = (inputs(taken), outputs(*given), NEWEST_VERSION, steps(*each))
    own = [parameters] if parameters else []
    return config(comment, name, platform("ensemble"), most, *head, *own)


def backend(name: str) -> str:
    return f'backend: "{name}"'


def platform(name: str) -> str:
    return f'platform: "{name}"'


def inputs(*tensors: Tensor) -> str:
    return _tensors("input", tensors)


def outputs(*tensors: Tensor) -> str:
    return _tensors("output", tensors)


def picture_network(pixels: Tensor, scores: Tensor) -> tuple[str, str]:
    """Inputs and outputs of an image network, with all that Triton's own image clients need."""
    return (
        inputs(replace(pixels, format="FORMAT_NCHW")),
        outputs(replace(scores, labels=LABELS)),
    )


def _tensors(direction: str, tensors: Sequence[Tensor]) -> str:
    return f"{direction} [\n" + ",\n".join(map(_tensor, tensors)) + "\n]"


def _tensor(tensor: Tensor) -> str:
    lines = [
        f'name: "{tensor.name}"',
        f"data_type: TYPE_{tensor.data_type}",
        f"dims: {_list(tensor.dims)}",
    ]
    if tensor.format:
        lines.insert(2, f"format: {tensor.format}")
    if tensor.ragged:
        lines.append(f"allow_ragged_batch: true  # {tensor.ragged}")
    if tensor.optional:
        lines.append("optional: true")
    if tensor.labels:
        lines.append(f'label_filename: "{tensor.labels}"')
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }"


def instances(count: int, kind: str, why: str = "") -> str:
    return _commented(why, f"instance_group [ {{ count: {count} kind: KIND_{kind} }} ]")


def share(member: Any, machine: Share) -> None:
    """Sets instances and threads in a parsed config."""
    member.instance_group[0].count = machine.instances
    member.parameters["threads"].string_value = str(machine.threads)


def preferred_batches(sizes: Sequence[int], delay_us: int) -> str:
    return (
        "dynamic_batching {\n"
        f"  preferred_batch_size: {_list(sizes)}\n"
        f"  max_queue_delay_microseconds: {delay_us}\n"
        f"{QUEUE_ENDS}"
        "}"
    )


def warmup(name: str, *samples: str) -> str:
    body = "".join(f"    {line}\n" for sample in samples for line in sample.splitlines())
    return f'model_warmup [\n  {{\n    name: "{name}"\n    batch_size: 1\n{body}  }}\n]'


def zeros(tensor: Tensor) -> str:
    return _sample(tensor, "zero_data: true")


def file(tensor: Tensor, name: str) -> str:
    return _sample(tensor, f'input_data_file: "{name}"')


def _sample(tensor: Tensor, data: str) -> str:
    value = f"data_type: TYPE_{tensor.data_type} dims: {_list(tensor.dims)} {data}"
    return f'inputs {{\n  key: "{tensor.name}"\n  value {{ {value} }}\n}}'


def parameter(key: str, value: str, why: str = "") -> str:
    quoted = json.dumps(value)
    return _commented(why, f'parameters {{ key: "{key}" value {{ string_value: {quoted} }} }}')


def steps(*steps: Step) -> str:
    return (
        "ensemble_scheduling {\n  step [\n" + ",\n".join(_step(step) for step in steps) + "\n  ]\n}"
    )


def _step(step: Step) -> str:
    lines = [f'model_name: "{step.model}"', "model_version: -1"]
    for direction, tensors in (("input", step.inputs), ("output", step.outputs)):
        lines += [f'{direction}_map {{ key: "{k}" value: "{v}" }}' for k, v in tensors.items()]
    return "    {\n" + "".join(f"      {line}\n" for line in lines) + "    }"


def _list(numbers: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, numbers))} ]"


def _commented(why: str, line: str) -> str:
    return f"# {why}\n{line}" if why else line
