"""Messages of gRPC as they are over HTTP: Triton's; and what came over gRPC, so that what looks at
requests and answers knows one form."""

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from google.protobuf.message import Message

from bundle_door.answers import Answer
from bundle_door.wire.inference import Asked, make_answer, plain_parameters
from bundle_serving.protocol.kserve import pb

GRPC_TYPE = "application/grpc"
ALL_BINARY = Asked(pieces=(), binary={}, binary_by_default=True)


def translate_question(message: bytes) -> tuple[str, bytes, Sequence[bytes]] | None:
    """The path, the JSON and the tensors; None of one that does not bring its tensors as bytes."""
    asked = pb.ModelInferRequest.FromString(message)
    tensors = asked.raw_input_contents
    if len(tensors) != len(asked.inputs):
        return None
    version = f"/versions/{quote(asked.model_version, safe='')}" if asked.model_version else ""
    told = {
        "parameters": {**plain_parameters(asked.parameters), "binary_data_output": True},
        "inputs": [
            {
                **_tell(each, binary_data_size=len(tensor)),
                "datatype": each.datatype,
                "shape": list(each.shape),
            }
            for each, tensor in zip(asked.inputs, tensors, strict=True)
        ],
        "outputs": [_tell(each, binary_data=True) for each in asked.outputs],
    }
    path = f"/v2/models/{quote(asked.model_name, safe='')}{version}/infer"
    return path, msgspec.json.encode(told), tensors


def _tell(tensor: Any, **more: Any) -> dict[str, Any]:
    parameters = {**plain_parameters(tensor.parameters), **more}
    return {"name": tensor.name, "parameters": parameters}


def translate_answer(answer: Answer) -> Answer:
    """The same, if it is none over gRPC."""
    if answer.headers.get("content-type") != GRPC_TYPE:
        return answer
    return make_answer(pb.ModelInferResponse.FromString(answer.body), ALL_BINARY)


def plain(message: Message) -> dict[str, Any]:
    """As Triton's own HTTP server tells it: all fields except unset messages and oneof fields;
    64-bit numbers as numbers.

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
