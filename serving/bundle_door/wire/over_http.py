"""Messages of gRPC as they are over HTTP: Triton's answers; and what came over gRPC, so that what
looks at requests and answers knows one form."""

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from google.protobuf.message import Message

from bundle_door.answers import JSON, Answer, Refused
from bundle_door.limits import MEGABYTE, MOST_JSON
from bundle_door.wire.inference import Asked
from bundle_door.wire.kserve import to_json
from bundle_serving.protocol.gists import HEADER_LENGTH
from bundle_serving.protocol.kserve import pb

GRPC_TYPE = "application/grpc"
ALL_BINARY = Asked(pieces=(), binary={}, binary_by_default=True)


def make_answer(response: pb.ModelInferResponse, asked: Asked) -> Answer:
    """The response's JSON, followed by the tensors requested as binary."""
    raw = list(response.raw_output_contents)
    left = MOST_JSON
    binary: list[bytes] = []
    outputs = []
    for index, output in enumerate(response.outputs):
        value = raw[index] if index < len(raw) else b""
        data = {}
        parameters = plain_parameters(output.parameters)
        is_binary = asked.binary.get(output.name, asked.binary_by_default)
        if is_binary:
            parameters["binary_data_size"] = len(value)
            binary.append(value)
        elif is_binary is not None:
            if (left := left - len(value)) < 0:
                raise Refused(
                    413,
                    f"the answer has more than {MOST_JSON / MEGABYTE:g} MB for JSON; ask for"
                    f" '{output.name}' with binary_data",
                )
            data = {"data": to_json(value, output.datatype)}
        told = {"parameters": parameters} if parameters else {}
        described = {
            "name": output.name, "datatype": output.datatype, "shape": list(output.shape),
        }  # fmt: skip
        outputs.append({**described, **told, **data})
    head = {"id": response.id} if response.id else {}
    head |= {"model_name": response.model_name, "model_version": response.model_version}
    if parameters := plain_parameters(response.parameters):
        head["parameters"] = parameters
    text = msgspec.json.encode({**head, "outputs": outputs})
    if not any(binary):
        return Answer(text, headers=JSON)
    return Answer(
        b"".join([text, *binary]),
        headers={"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))},
    )


def values(response: pb.ModelInferResponse) -> dict[str, list[Any]]:
    """Each output's values in one list."""
    return {
        output.name: to_json(raw, output.datatype)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def plain_parameters(parameters: Any) -> dict[str, Any]:
    if not parameters:
        return {}
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in parameters.items()
        if value.WhichOneof("parameter_choice")
    }


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
