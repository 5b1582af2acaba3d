"""A file with functions of the user's own -> what they take and give, once each has answered its
example. Runs in the server's environment.

    python -m kinds.callable.describe --file mine.py --out build/run/callables.json
    python -m kinds.callable.describe --file mine.py --same '{"mine": {…}}'    # or refuses
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytriton.proxy.types import Request

from bundle_serving.infer import pack_question
from bundle_serving.own_steps import one_line, use_packages
from kinds.callable.serving.callables import Bound, Instance, NotServed, load
from kinds.callable.serving.values import Spec
from scripts.artefacts.exporting import start
from scripts.base import files
from scripts.base.errors import UserError


def main(
    file: Path,
    packages: Path | None = None,
    out: Path | None = None,
    same: Mapping[str, Any] | None = None,
) -> None:
    """`packages`: what the file imports besides; `same`: as it was before, by name."""
    use_packages(str(packages or ""))
    try:
        bound = load(file)
    except NotServed as fault:
        raise UserError.from_fault(fault) from None
    described = {name: try_function(each) for name, each in bound.items()}
    require_same(file.name, same or {}, described)
    if out:
        files.write(out, json.dumps(described) + "\n")


def try_function(bound: Bound) -> dict[str, Any]:
    """Its part of a recipe."""
    question = bound.question
    try:
        for number in range(len(bound.callables)):
            for _ in Instance(bound, number)([Request(dict(question))]):
                pass
    except Exception as fault:
        raise UserError(
            f"{bound.name} does not answer its example ({one_line(fault)})",
            "correct it, or say in EXAMPLES what it answers",
        ) from None
    batcher = bound.config.batcher
    return {
        "inputs": [_tensor(spec) for spec in bound.inputs],
        "outputs": [_tensor(spec) for spec in bound.outputs],
        "batch": {
            "max": bound.most,
            "preferred": batcher.preferred_batch_size or [],
            "max_delay_us": batcher.max_queue_delay_microseconds,
        },
        "several_answers": bound.config.decoupled,
        "instances": len(bound.callables),
        "request": pack_question(question),
    }


def require_same(file: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, was in before.items():
        if name not in now:
            raise UserError(
                f"{file} does not bind {name} any more", "bind it, or remove the pipeline"
            )
        changed = [key for key in was if was[key] != now[name][key]]
        if changed:
            raise UserError(
                f"{', '.join(changed)} of {name} in {file} differ from when it was added",
                f"to change that: make remove-model NAME={name}, then make add-callable again",
            )


def _tensor(spec: Spec) -> dict[str, Any]:
    datatype = {"BYTES": "STRING"}.get(spec.datatype, spec.datatype)
    return {"name": spec.name, "data_type": datatype, "dims": list(spec.dims)}


if __name__ == "__main__":
    start(main)
