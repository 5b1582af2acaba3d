"""Inference over HTTP: the body -> a gRPC request for Triton (over_http.py has the answer).

Tensors are kept as bytes beside the protobuf message, so that a picture is not copied into one:
field 7 of a ModelInferRequest comes after the others, each value preceded by its length.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from bundle_door.answers import Refused
from bundle_door.wire.kserve import (
    SIZES,
    Inference,
    Input,
    Output,
    TensorParameters,
    Value,
    decode,
    from_json,
    parse,
)
from bundle_serving import CACHE
from bundle_serving.protocol.gists import LENGTH
from bundle_serving.protocol.kserve import pb

# raw_input_contents of a ModelInferRequest: field 7, of bytes.
RAW_INPUT = bytes([7 << 3 | 2])
# Of an output's parameters, and of a request's.
CLASSES = "classification"
UNSIGNED = "priority", "sequence_id", "timeout"


@dataclass(slots=True)
class Asked:
    """The request for Triton, and how to send the answer."""

    # The serialised ModelInferRequest, in pieces.
    pieces: Sequence[bytes | memoryview]
    # For the requested outputs: whether their values follow the JSON as binary; None of one that
    # Triton writes into shared memory.
    binary: Mapping[str, bool | None]
    # The same for all other outputs.
    binary_by_default: bool
    # Of a batch, if the model takes any.
    rows: int = 1
    # The client's own.
    id: str = ""
    # The outputs whose classes are wanted.
    classified: Sequence[str] = ()


@dataclass(frozen=True)
class Signature:
    """A model's only input, for bodies without JSON."""

    name: str
    datatype: str
    # Without the batch dimension.
    dims: tuple[int, ...]
    batches: bool
    # The output with labels, otherwise the first; none of texts.
    output: str = ""


def header_length(header: str | None, size: int) -> int | None:
    """The length of a body's JSON; None if the whole body is one tensor."""
    if header is None:
        return size
    if not (header.isascii() and header.isdigit() and len(header) <= 12):
        raise Refused(400, f"Inference-Header-Content-Length: {header[:50]!r} is not a length")
    length = int(header)
    if length > size:
        raise Refused(
            400, f"Inference-Header-Content-Length is {length}, but the body has {size} bytes"
        )
    return length or None


def from_body(
    model: str,
    version: str,
    body: bytes,
    length: int,
    may_be_repeated: bool = True,
    request_id: str = "",
) -> Asked:
    """A body with JSON in its first `length` bytes, followed by binary tensors."""
    asked = parse(memoryview(body)[:length], Inference)
    tensors = list(payloads(asked.inputs, memoryview(body)[length:]))
    message = pb.ModelInferRequest(
        model_name=model,
        model_version=version,
        id=request_id or asked.id,
        inputs=[_input(tensor) for tensor in asked.inputs],
        outputs=[_output(output) for output in asked.outputs],
    )
    parameters: dict[str, Any] = {
        name: decode(value, Value, f"the parameter '{name}'")
        for name, value in asked.parameters.items()
    }
    by_default = parameters.pop("binary_data_output", False)
    if not isinstance(by_default, bool):
        raise Refused(400, "the parameter 'binary_data_output' must be true or false")
    _set_parameters(message.parameters, parameters)
    if not may_be_repeated:
        message.parameters[CACHE].bool_param = False
    return Asked(
        pieces=list(frame_message(message, tensors)),
        binary={
            output.name: output.parameters.binary_data
            if output.parameters.shared_memory_region is UNSET
            else None
            for output in asked.outputs
        },
        binary_by_default=by_default,
        rows=asked.inputs[0].shape[0] if asked.inputs and asked.inputs[0].shape else 1,
        id=asked.id,
        classified=[each.name for each in asked.outputs if each.parameters.classification],
    )


def from_raw(
    model: str,
    version: str,
    chunks: Sequence[bytes | memoryview],
    signature: Signature,
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor] = (),
    request_id: str = "",
    may_be_repeated: bool = True,
) -> Asked:
    """A body that is the model's only tensor."""
    size = sum(map(len, chunks))
    if signature.datatype == "BYTES":
        chunks = [LENGTH.pack(size), *chunks]
    message = pb.ModelInferRequest(
        model_name=model, model_version=version, id=request_id, outputs=outputs
    )
    message.inputs.add(
        name=signature.name, datatype=signature.datatype, shape=raw_shape(signature, size)
    )
    if not may_be_repeated:
        message.parameters[CACHE].bool_param = False
    head = message.SerializeToString() + RAW_INPUT + varint(sum(map(len, chunks)))
    return Asked([head, *chunks], binary={}, binary_by_default=True)


def raw_shape(signature: Signature, size: int) -> list[int]:
    """The shape of a body of `size` bytes, if only one dimension is variable."""
    batch = [1] * signature.batches
    if signature.datatype == "BYTES":
        return [*batch, *(1 for _ in signature.dims)]
    item = SIZES[signature.datatype] * math.prod(dim for dim in signature.dims if dim >= 0)
    if signature.dims.count(-1) > 1:
        raise Refused(
            400, f"a raw body cannot give the shape of '{signature.name}'; send JSON with a shape"
        )
    count, rest = divmod(size, item) if item else (0, size)
    if rest or (count != 1 and -1 not in signature.dims):
        raise Refused(
            400,
            f"{size} bytes do not fill '{signature.name}', of {signature.datatype} and shape"
            f" {list(signature.dims)}",
        )
    return [*batch, *(count if dim == -1 else dim for dim in signature.dims)]


def payloads(inputs: Sequence[Input], binary: memoryview) -> Iterator[bytes | memoryview]:
    """The values of each input that is not in shared memory."""
    position = 0
    for tensor in inputs:
        size, region = tensor.parameters.binary_data_size, tensor.parameters.shared_memory_region
        sources = sum(each is not UNSET for each in (tensor.data, size, region))
        if not sources:
            raise Refused(400, f"input '{tensor.name}' has neither 'data' nor binary_data_size")
        if sources > 1:
            raise Refused(
                400,
                f"input '{tensor.name}' has more than one of 'data', binary_data_size and"
                " shared_memory_region",
            )
        if size is not UNSET:
            _check_size(tensor, size, len(binary) - position)
            yield binary[position : position + size]
            position += size
        elif tensor.data is not UNSET:
            yield from_json(bytes(tensor.data), tensor.datatype, tensor.shape, tensor.name)
    if position != len(binary):
        raise Refused(
            400,
            f"{len(binary) - position} bytes follow the JSON that no input's binary_data_size"
            " accounts for",
        )


def frame_message(
    message: pb.ModelInferRequest, tensors: Iterable[bytes | memoryview]
) -> Iterator[bytes | memoryview]:
    """The serialised message in pieces, with the tensors as raw_input_contents."""
    yield message.SerializeToString()
    for tensor in tensors:
        yield RAW_INPUT + varint(len(tensor))
        yield tensor


def varint(value: int) -> bytes:
    """A number in protobuf's encoding: seven bits per byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _check_size(tensor: Input, size: int, left: int) -> None:
    if size > left:
        raise Refused(
            400, f"input '{tensor.name}': binary_data_size is {size}, but {left} bytes are left"
        )
    count = math.prod(tensor.shape)
    if tensor.datatype == "BYTES":
        fits, expected = size >= count * LENGTH.size, f"at least {count * LENGTH.size}"
    else:
        fits = size == count * SIZES[tensor.datatype]
        expected = str(count * SIZES[tensor.datatype])
    if not fits:
        raise Refused(
            400,
            f"input '{tensor.name}': binary_data_size is {size}, but {tensor.datatype} of"
            f" shape {tensor.shape} takes {expected} bytes",
        )


def _input(tensor: Input) -> pb.ModelInferRequest.InferInputTensor:
    message = pb.ModelInferRequest.InferInputTensor(
        name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
    )
    _set_shared_memory(message.parameters, tensor.parameters)
    return message


def _output(output: Output) -> pb.ModelInferRequest.InferRequestedOutputTensor:
    parameters = output.parameters
    message = pb.ModelInferRequest.InferRequestedOutputTensor(name=output.name)
    if parameters.classification:
        message = classes_of(output.name, parameters.classification)
        if parameters.shared_memory_region is not UNSET:
            raise Refused(
                400, f"output '{output.name}': shared memory and classification exclude each other"
            )
    _set_shared_memory(message.parameters, parameters)
    return message


def classes_of(output: str, count: int) -> pb.ModelInferRequest.InferRequestedOutputTensor:
    """The `count` likeliest classes of an output, each as "value:index:label"."""
    return pb.ModelInferRequest.InferRequestedOutputTensor(
        name=output, parameters={CLASSES: pb.InferParameter(int64_param=count)}
    )


def _set_shared_memory(message: Any, parameters: TensorParameters) -> None:
    if parameters.shared_memory_region is UNSET:
        return
    message["shared_memory_region"].string_param = parameters.shared_memory_region
    message["shared_memory_byte_size"].int64_param = parameters.shared_memory_byte_size
    if parameters.shared_memory_offset:
        message["shared_memory_offset"].int64_param = parameters.shared_memory_offset


def _set_parameters(message: Any, parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            message[name].bool_param = value
        elif isinstance(value, str):
            message[name].string_param = value
        elif isinstance(value, float):
            message[name].double_param = value
        elif not -(2**63) <= value < 2**64:
            raise Refused(400, f"the parameter '{name}' does not fit into 64 bits")
        elif name in UNSIGNED and value < 0:
            raise Refused(400, f"the parameter '{name}' is {value}; send 0 or more")
        elif name == "priority":
            message[name].uint64_param = value
        elif name in UNSIGNED:
            # Triton takes the same 64 bits as a signed number alone.
            message[name].int64_param = value if value < 2**63 else value - 2**64
        elif value >= 2**63:
            message[name].double_param = value
        else:
            message[name].int64_param = value
