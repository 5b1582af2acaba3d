"""Scripts for Envoy's Lua, each with values before it."""

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path


def write_program(script: str, values: Mapping[str, object]) -> str:
    head = [f"local {name} = {_write(value)}" for name, value in values.items()]
    return "\n".join([*head, Path(__file__).with_name(script).read_text()])


def _write(value: object) -> str:
    if value is None:
        return "nil"
    if value == math.inf:
        return "math.huge"
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        entries = (f"[{_write(key)}] = {_write(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    return json.dumps(value, ensure_ascii=False)
