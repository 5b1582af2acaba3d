"""Protobuf messages as plain values, like those of Triton's own HTTP server."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """All fields except unset messages and oneof fields; 64-bit numbers as numbers.

    (json_format would turn those into strings.)
    """
    return {
        field.name: _field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _field(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of_value = kind.fields_by_name["value"]
        return {key: _value(of_value, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value(field, item) for item in value]
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
