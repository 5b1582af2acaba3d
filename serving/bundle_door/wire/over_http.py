"""What came over gRPC, as it would have come over HTTP: so what looks at requests and answers knows
one form."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from bundle_door.answers import Answer
from bundle_door.limits import Limits
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
                "name": each.name,
                "datatype": each.datatype,
                "shape": list(each.shape),
                "parameters": {
                    **plain_parameters(each.parameters),
                    "binary_data_size": len(tensor),
                },
            }
            for each, tensor in zip(asked.inputs, tensors, strict=True)
        ],
        "outputs": [
            {
                "name": each.name,
                "parameters": {**plain_parameters(each.parameters), "binary_data": True},
            }
            for each in asked.outputs
        ],
    }
    path = f"/v2/models/{quote(asked.model_name, safe='')}{version}/infer"
    return path, msgspec.json.encode(told), tensors


def translate_answer(answer: Answer) -> Answer:
    """The same, if it is none over gRPC."""
    if answer.headers.get("content-type") != GRPC_TYPE:
        return answer
    return make_answer(pb.ModelInferResponse.FromString(answer.body), ALL_BINARY, Limits())
