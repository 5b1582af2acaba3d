"""One request over HTTP, in KServe's protocol with binary tensors, that costs next to nothing: a
rollout sends many."""

import base64
import http.client
import json
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving import CACHE
from bundle_serving.address import read_refusal

# Tensors by name, a batch of one.
Question = Mapping[str, NDArray[Any]]
Answer = Mapping[str, NDArray[Any]]

TYPES = {
    **{
        f"{kind}{bits}": f"{kind}{bits}".upper()
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "bool": "BOOL",
}
NUMPY = {name: np.dtype(kind) for kind, name in TYPES.items()}
LENGTH = "Inference-Header-Content-Length"
NOTHING: Mapping[str, Any] = {}
# Numbers of sequences, as far as every reader of JSON keeps them exact.
MOST_SEQUENCES = 2**53


def ask(
    connection: http.client.HTTPConnection,
    model: str,
    question: Question,
    headers: Mapping[str, str] = NOTHING,
) -> Answer:
    """Raises ValueError with the server's message if there is no answer."""
    body, length = write_request(question)
    connection.request("POST", f"/v2/models/{model}/infer", body, length | dict(headers))
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise ValueError(read_refusal(answer.status, content))
    return read_answer(content, answer.headers.get(LENGTH))


def write_request(question: Question) -> tuple[bytes, dict[str, str]]:
    """Its body and its header. It is a whole sequence, for models that keep sequences apart; all
    others ignore that."""
    sequence = random.randrange(1, MOST_SEQUENCES)
    alone = {"sequence_id": sequence, "sequence_start": True, "sequence_end": True}
    head, contents = _frame(question, alone)
    return head + contents, {LENGTH: str(len(head))}


def read_answer(content: bytes, length: str | None) -> Answer:
    """`length`: the header LENGTH."""
    # Without it all is JSON: no tensor of the answer has an element.
    at = int(length or len(content))
    return _tensors(json.loads(content[:at])["outputs"], content[at:])


def pack_question(question: Question) -> str:
    """A whole request in one word, for a config; bundle_serving.health sends it."""
    return base64.b64encode(b"".join(_frame(question))).decode()


def unpack_question(text: str) -> Question:
    head, _, contents = base64.b64decode(text).partition(b"\n")
    return _tensors(json.loads(head)["inputs"], contents)


def _frame(question: Question, parameters: Mapping[str, Any] = NOTHING) -> tuple[bytes, bytes]:
    """Its JSON, which a line's end follows, and its tensors."""
    contents = {name: _encode(tensor) for name, tensor in question.items()}
    inputs = [
        {
            "name": name,
            "datatype": TYPES.get(tensor.dtype.name, "BYTES"),
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(contents[name])},
        }
        for name, tensor in question.items()
    ]
    # What the server computes is wanted, not what it remembers.
    computed = {"binary_data_output": True, CACHE: False}
    head = {"inputs": inputs, "parameters": computed | dict(parameters)}
    return json.dumps(head).encode() + b"\n", b"".join(contents.values())


def _tensors(described: Sequence[Mapping[str, Any]], content: bytes) -> dict[str, NDArray[Any]]:
    found, at = {}, 0
    for tensor in described:
        size = tensor["parameters"]["binary_data_size"]
        flat = _decode(content[at : at + size], tensor["datatype"])
        found[tensor["name"]] = flat.reshape(tensor["shape"])
        at += size
    return found


def _encode(tensor: NDArray[Any]) -> bytes:
    if tensor.dtype.name in TYPES:
        return tensor.tobytes()
    return b"".join(struct.pack("<I", len(each)) + each for each in tensor.ravel().tolist())


def _decode(content: bytes, kind: str) -> NDArray[Any]:
    if kind != "BYTES":
        return np.frombuffer(content, NUMPY[kind])
    texts = []
    while content:
        (size,) = struct.unpack_from("<I", content)
        texts.append(content[4 : 4 + size])
        content = content[4 + size :]
    return np.array(texts, np.bytes_)
