"""What the door makes of requests: parsed, checked, and put as Triton takes them over gRPC."""

import asyncio
import gc
import gzip
import json
import math
import os
import random
import re
import struct
import time
import weakref
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from bundle_door import streams
from bundle_door.__main__ import arguments, read_options
from bundle_door.answers import Answer, Refused
from bundle_door.documents import add_cards, documents, find_own_cards
from bundle_door.front import envoy, messages
from bundle_door.given import Given
from bundle_door.http_process import keep_log_short
from bundle_door.limits import (
    MEGABYTE,
    MOST_ID,
    MOST_NAME,
    MOST_PARAMETERS,
    MOST_TENSORS,
    MOST_TEXT,
    Limits,
    Load,
    Share,
)
from bundle_door.paths import routes
from bundle_door.paths.api import Api, load_parameter
from bundle_door.paths.plain import AT_ONCE, PlainQuestions, top_of, why
from bundle_door.paths.routes import open_to_all
from bundle_door.requests import Note, Request
from bundle_door.service import (
    Service,
    choose_encoding,
    decompress,
    encode_answer,
    may_be_compressed,
)
from bundle_door.settings import MOST_BODY_MB, read_origins
from bundle_door.triton import DATA_TYPES, TEXTS, join_answers, signature_of
from bundle_door.watching.steps import Report, Steps
from bundle_door.wire.http1 import Body, Incoming
from bundle_door.wire.inference import (
    Asked,
    Signature,
    from_body,
    from_raw,
    header_length,
    raw_shape,
    varint,
)
from bundle_door.wire.kserve import LogSettings, decode, from_json
from bundle_door.wire.multipart import files
from bundle_door.wire.over_http import make_answer
from bundle_serving.process.exposure import Exposure
from bundle_serving.protocol.kserve import pb

LOCAL = Exposure(bind="127.0.0.1")
TENSOR = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}
BINARY = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}


def body(*inputs: dict[str, Any], binary: bytes = b"", **more: Any) -> tuple[bytes, int]:
    text = json.dumps({"inputs": inputs, **more}).encode()
    return text + binary, len(text)


def message(body: bytes, length: int) -> Any:
    asked = from_body("echo", "1", body, length)
    return pb.ModelInferRequest.FromString(b"".join(asked.pieces))


def test_json_and_binary_tensors_travel_as_raw_contents() -> None:
    found = message(*body(TENSOR, BINARY | {"name": "B"}, binary=b"12345678", id="x"))
    assert (found.model_name, found.model_version, found.id) == ("echo", "1", "x")
    assert list(found.raw_input_contents) == [b"\1\0\0\0\2\0\0\0", b"12345678"]
    assert [tensor.name for tensor in found.inputs] == ["IN", "B"]


def test_a_byte_order_mark() -> None:
    """Of programs on Windows; Triton passes over it, too."""
    text, length = body(TENSOR, id="x")
    assert message(b"\xef\xbb\xbf" + text, length + 3).id == "x"


def test_what_kserves_and_mlservers_clients_say_besides() -> None:
    spoken = {"parameters": {"content_type": "np"}}
    outputs = [{"name": "OUT", **spoken}]
    found = message(*body(TENSOR | spoken, id="x", model_name="live", outputs=outputs))
    assert found.inputs[0].name == "IN" and not found.inputs[0].parameters
    assert found.model_name == "echo", "of the path, where a candidate is asked instead"


def answer(*shape: int) -> pb.ModelInferResponse:
    found = pb.ModelInferResponse(raw_output_contents=[bytes([shape[0]]) * math.prod(shape)])
    found.outputs.add(name="OUT", datatype="UINT8", shape=shape)
    return found


def test_several_answers_become_one() -> None:
    whole = join_answers([answer(1, 2), answer(2, 2), answer(1, 2)])
    assert list(whole.outputs[0].shape) == [4, 2]
    assert list(whole.raw_output_contents) == [b"\1\1\2\2\2\2\1\1"]
    with pytest.raises(Refused, match="OUT of several shapes"):
        join_answers([answer(1, 2), answer(1, 3)])
    with pytest.raises(Refused, match="no answer"):
        join_answers([])


def test_shared_memory_and_parameters() -> None:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1, 2], "parameters": region}
    output = {"name": "OUT", "parameters": {"classification": 3}}
    parameters = {"priority": 1, "mine": 0.5, "large": 2**63, "binary_data_output": True}
    found = message(*body(tensor, outputs=[output], parameters=parameters))
    assert found.inputs[0].parameters["shared_memory_region"].string_param == "r"
    assert found.outputs[0].parameters["classification"].int64_param == 3
    assert found.parameters["priority"].uint64_param == 1
    assert found.parameters["mine"].double_param == 0.5
    assert found.parameters["large"].double_param == 2**63, "as Triton reads it over HTTP"
    assert "binary_data_output" not in found.parameters and not found.raw_input_contents


@pytest.mark.parametrize("name", ["sequence_id", "timeout"])
def test_numbers_of_64_bits_that_triton_takes_as_signed(name: str) -> None:
    """Over gRPC it refuses them as unsigned."""
    for value, signed in ((5, 5), (2**63, -(2**63)), (2**64 - 1, -1)):
        found = message(*body(TENSOR, parameters={name: value}))
        assert found.parameters[name].int64_param == signed
    with pytest.raises(Refused, match=f"'{name}' is -1; send 0 or more"):
        message(*body(TENSOR, parameters={name: -1}))


REFUSED: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "no data": ({"data": None}, b"", "'data'"),
    "too few": ({"data": [1]}, b"", "'data' has 1 values, but its shape requires 2"),
    "a shape too large": ({"shape": [1, 2**40]}, b"", "its shape requires 1099511627776"),
    "a negative shape": ({"shape": [-1, 2]}, b"", "Expected `int` >= 0"),
    "a shape of words": ({"shape": "all"}, b"", r"Expected `array`, got `str` - at `\$"),
    "too many dimensions": ({"shape": [1] * 33}, b"", "length <= 32"),
    "nested too deep": ({"data": [[[1, 2]]]}, b"", "nested 3 deep, but its shape has 2"),
    "unevenly nested": ({"data": [[1], 2]}, b"", "Expected `array`, got `int`"),
    "a fraction": ({"data": [1, 2.5]}, b"", "not INT32: Expected `int`, got `float`"),
    "out of range": ({"data": [1, 2**31]}, b"", "a value beyond INT32"),
    "a float out of range": ({"datatype": "FP64", "data": [1, 10**400]}, b"", "out of range"),
    "no number": ({"datatype": "FP64", "data": [1e300, True]}, b"", "got `bool` - at"),
    "no such datatype": ({"datatype": "INT128"}, b"", "Invalid enum value 'INT128'"),
    "half floats in JSON": ({"datatype": "FP16"}, b"", "FP16 cannot be sent as JSON"),
    "an unknown field": ({"dat": []}, b"", "unknown field `dat`"),
    "an unknown parameter": ({"parameters": {"binary_size": 8}}, b"", "unknown field"),
    "data twice": ({"parameters": {"binary_data_size": 8}}, b"12345678", "more than one of"),
    "bytes left over": ({}, b"1", "1 bytes follow the JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_tensor_is_refused_with_its_cause(name: str) -> None:
    changes, binary, cause = REFUSED[name]
    with pytest.raises(Refused, match=cause) as refusal:
        message(*body({**TENSOR, **changes}, binary=binary))
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "size, binary, cause",
    [
        (4, b"1234", "INT32 of shape .* takes 8 bytes"),
        (8, b"1234", "binary_data_size is 8, but 4 bytes are left"),
        (-1, b"", "binary_data_size"),
    ],
)
def test_binary_data_fits_its_shape(size: int, binary: bytes, cause: str) -> None:
    with pytest.raises(Refused, match=cause):
        message(*body(BINARY | {"parameters": {"binary_data_size": size}}, binary=binary))


@pytest.mark.parametrize(
    "text, cause",
    [
        (b"", "truncated"),
        (b"[" * 1000, "Expected `object`"),
        (b'{"inputs":' + b"[" * 1000, "Expected `object`"),
        (b'{"inputs":[{"data":' + b"[" * 1_000_000, "nested too deep"),
        (b'{"id":"\xff"}', "not UTF-8"),
        (b'{"inputs":[]}]', "trailing characters"),
        (b'{"inputs":[],"parameters":{"binary_data_output":1}}', "must be true or false"),
        (b'{"inputs":[],"parameters":{"a":[]}}', "the parameter 'a': Expected"),
        (b'{"inputs":[],"parameters":{"a":18446744073709551616}}', "64 bits|out of range"),
    ],
)
def test_bad_json_is_refused(text: bytes, cause: str) -> None:
    with pytest.raises(Refused, match=cause) as refusal:
        message(text, len(text))
    assert refusal.value.status == 400


MANY: dict[str, dict[str, Any]] = {
    "inputs": {"inputs": [TENSOR] * (MOST_TENSORS + 1)},
    "outputs": {"outputs": [{"name": "OUT"}] * (MOST_TENSORS + 1)},
    "parameters": {"parameters": {str(n): n for n in range(MOST_PARAMETERS + 1)}},
    "a long name": {"inputs": [TENSOR | {"name": "x" * (MOST_NAME + 1)}]},
    "an output's long name": {"outputs": [{"name": "x" * (MOST_NAME + 1)}]},
    "a parameter's long name": {"parameters": {"x" * (MOST_NAME + 1): 1}},
    "a long text": {"parameters": {"a": "x" * (MOST_TEXT + 1)}},
    "a long id": {"id": "x" * (MOST_ID + 1)},
    "a priority below 0": {"parameters": {"priority": -1}},
}


@pytest.mark.parametrize("name", MANY)
def test_how_much_a_request_may_name(name: str) -> None:
    whole = json.dumps({"inputs": [TENSOR], **MANY[name]}).encode()
    with pytest.raises(Refused) as refusal:
        from_body("echo", "1", whole, len(whole))
    assert refusal.value.status == 400


def test_as_much_as_a_request_may_name() -> None:
    name = "x" * MOST_NAME
    whole, length = body(
        *[TENSOR | {"name": name}] * MOST_TENSORS,
        outputs=[{"name": name}] * MOST_TENSORS,
        parameters={f"{n:{MOST_NAME}}": "x" * MOST_TEXT for n in range(MOST_PARAMETERS)},
        id="x" * MOST_ID,
    )
    assert from_body("echo", "1", whole, length)


def test_a_path_with_a_long_name() -> None:
    async def answer(request: Request, named: Mapping[str, str]) -> Answer:
        return Answer()

    route = routes.open_to_all(routes.VERSIONED, GET=answer)
    for path in (f"/v2/models/{'x' * 300}", f"/v2/models/x/versions/{'1' * 300}"):
        with pytest.raises(Refused, match="has 300 characters; send 256 at most"):
            routes.find_route([route], "GET", path)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_setting_of_the_log_that_is_no_number_of_it(value: int) -> None:
    with pytest.raises(Refused, match="Expected `int`"):
        decode(b'{"log_verbose_level": %d}' % value, LogSettings, "the request's JSON")


def test_a_file_of_a_load_that_is_not_base64() -> None:
    for text in ("?", "é"):
        with pytest.raises(Refused, match="is not base64"):
            load_parameter("file:1/model.py", text)


@pytest.mark.parametrize("top", ["00001999999999999999999", "9" * 5000, "-1", "1e1", "²", ""])
def test_a_number_of_labels_that_is_none(top: str) -> None:
    with pytest.raises(Refused, match="is not a number of labels"):
        top_of({"top": top})


def test_large_json_is_refused_unread() -> None:
    with pytest.raises(Refused, match=r"larger than 8 MB") as refusal:
        message(b"[" * 8_000_001, 8_000_001)
    assert refusal.value.status == 413


def test_header_length() -> None:
    assert header_length(None, 7) == 7 and header_length("5", 7) == 5
    assert header_length("0", 7) is None
    for wrong in ("8", "-1", "1e3", "", "٣", "9" * 30):
        with pytest.raises(Refused):
            header_length(wrong, 7)


@pytest.mark.parametrize(
    "datatype, dims, size, shape",
    [
        ("UINT8", (-1,), 5, [1, 5]),
        ("FP32", (3, -1), 24, [1, 3, 2]),
        ("FP32", (2,), 8, [1, 2]),
        ("BYTES", (1,), 100, [1, 1]),
    ],
)
def test_a_raw_body_fills_the_open_dimension(
    datatype: str, dims: tuple[int, ...], size: int, shape: list[int]
) -> None:
    assert raw_shape(Signature("IN", datatype, dims, batches=True), size) == shape
    assert raw_shape(Signature("IN", datatype, dims, batches=False), size) == shape[1:]


@pytest.mark.parametrize("dims, size", [((2,), 9), ((-1, -1), 8), ((3, -1), 4)])
def test_a_raw_body_that_fits_no_shape(dims: tuple[int, ...], size: int) -> None:
    with pytest.raises(Refused):
        raw_shape(Signature("IN", "FP32", dims, batches=True), size)


def test_a_raw_text_has_its_length_before_it() -> None:
    asked = from_raw("m", "", [b"He", b"llo"], Signature("IN", "BYTES", (1,), batches=False))
    found = pb.ModelInferRequest.FromString(b"".join(asked.pieces))
    assert list(found.raw_input_contents) == [b"\5\0\0\0Hello"]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21, 64_000_000])
def test_varint(value: int) -> None:
    written = pb.ModelInferRequest.FromString(b"\x3a" + varint(value) + bytes(value))
    assert len(written.raw_input_contents[0]) == value


def test_an_answer_as_json_and_as_binary() -> None:
    tensor = pb.ModelInferResponse.InferOutputTensor
    response = pb.ModelInferResponse(
        model_name="m",
        model_version="1",
        outputs=[tensor(name=name, datatype="FP32", shape=[1]) for name in "ab"],
        raw_output_contents=[b"\0\0\0\x3f", b"\0\0\x80\x7f"],
    )
    asked = from_body("m", "", *body(TENSOR, outputs=[{"name": "b"}]))
    assert json.loads(make_answer(response, asked).body)["outputs"] == [
        {"name": "a", "datatype": "FP32", "shape": [1], "data": [0.5]},
        # JSON knows no infinity.
        {"name": "b", "datatype": "FP32", "shape": [1], "data": [None]},
    ]
    output = {"name": "a", "parameters": {"binary_data": True}}
    asked = from_body("m", "", *body(TENSOR, outputs=[output]))
    answer = make_answer(response, asked)
    length = int(answer.headers["inference-header-content-length"])
    first, second = json.loads(answer.body[:length])["outputs"]
    assert first["parameters"] == {"binary_data_size": 4} and "data" in second
    assert answer.body[length:] == b"\0\0\0\x3f"


def test_an_answer_in_shared_memory() -> None:
    """Of which Triton's gRPC says nothing."""
    response = pb.ModelInferResponse(raw_output_contents=[b""])
    response.outputs.add(name="OUT", datatype="FP32", shape=[1])
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    asked = from_body("m", "", *body(TENSOR, outputs=[{"name": "OUT", "parameters": region}]))
    (output,) = json.loads(make_answer(response, asked).body)["outputs"]
    assert output == {"name": "OUT", "datatype": "FP32", "shape": [1]}


def test_an_answer_that_is_too_large_for_json() -> None:
    response = pb.ModelInferResponse(raw_output_contents=[bytes(5_000_000)] * 2)
    for name in "ab":
        response.outputs.add(name=name, datatype="UINT8", shape=[5_000_000])
    one = {"name": "b", "parameters": {"binary_data": True}}
    asked = from_body("m", "", *body(TENSOR, outputs=[one]))
    assert make_answer(response, asked).status == 200
    asked = from_body("m", "", *body(TENSOR))
    with pytest.raises(Refused, match="ask for 'b' with binary_data") as refusal:
        make_answer(response, asked)
    assert refusal.value.status == 413


@pytest.mark.parametrize(
    ("datatype", "shape", "value"), [("INT32", [500_001, 1], "[1]"), ("BYTES", [500_001], '""')]
)
def test_values_of_which_python_would_make_many_objects(
    datatype: str, shape: list[int], value: str
) -> None:
    data = f"[{','.join([value] * 500_001)}]"
    with pytest.raises(Refused, match="more than 500000 lists or texts") as refusal:
        from_json(data.encode(), datatype, shape, "IN")
    assert refusal.value.status == 413


def test_numbers_near_the_limits_take_no_longer() -> None:
    numbers, limit = b",".join([b"1e308"] * 100_000), 1.7976931348623157e308
    began = time.process_time()
    assert from_json(b"[[%b]]" % numbers, "FP64", [1, 100_000], "IN")[:8] == struct.pack("d", 1e308)
    names = b'"a":' + numbers.replace(b",", b',"a":')
    text = b'{"inputs":[],"parameters":{%b}}' % names
    assert message(text, len(text)).parameters["a"].double_param == 1e308
    assert time.process_time() - began < 0.5
    told = array("d", [limit, -limit, 5e-324, 1e-300, -0.0, 2**64])
    assert from_json(json.dumps(told.tolist()).encode(), "FP64", [6], "IN") == told.tobytes()
    with pytest.raises(Refused, match=r"Expected `float` >= -1\.79"):
        from_json(b"[1,-1e999]", "FP64", [2], "IN")


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", COMPRESS)
def test_compressed_bodies_are_bounded(encoding: str) -> None:
    bomb = COMPRESS[encoding](bytes(3_000_000))
    assert len(b"".join(decompress([bomb], encoding, 3_000_000))) == 3_000_000
    with pytest.raises(Refused) as refusal:
        list(decompress([bomb], encoding, 2_999_999))
    assert refusal.value.status == 413
    for wrong in (bomb[:-1], bomb + b"x", bomb + bomb, b"x", b"x" + bomb):
        with pytest.raises(Refused) as refusal:
            list(decompress([wrong], encoding, 10_000_000))
        assert refusal.value.status == 400


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_that_holds_far_more_than_its_size(encoding: str) -> None:
    noise, limit = random.Random(1).randbytes(100_000), 64_000_000
    most = COMPRESS[encoding](noise + bytes(9_000_000))
    assert len(b"".join(decompress([most], encoding, limit))) == 9_100_000
    beyond = COMPRESS[encoding](noise + bytes(12_000_000))
    with pytest.raises(Refused, match="more than 100 times its own size") as refusal:
        list(decompress([beyond], encoding, limit))
    assert refusal.value.status == 413


def test_compressed_bodies_in_pieces() -> None:
    whole = gzip.compress(b"some text")
    pieces = [whole[index : index + 1] for index in range(len(whole))]
    assert b"".join(decompress(pieces, "gzip", 100)) == b"some text"


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(Refused, match="br is not supported") as refusal:
        list(decompress([zlib.compress(b"")], "br", 100))
    assert refusal.value.status == 415


@pytest.mark.parametrize(
    "accepted, encoding",
    [
        ("", None),
        ("br", None),
        ("gzip", "gzip"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("deflate, gzip", "deflate"),
        ("identity, gzip;q=0.5", None),
        ("GZIP ; Q=1.000", "gzip"),
        ("deflate;q=.5, gzip;q=0.4999", "deflate"),
        ("gzip;q=0", None),
        ("gzip;q=1e999", None),
        ("gzip;q=-1, a b, deflate;q=.,, gzip;q=", None),
        ("identity, *;q=0.1", None),
    ],
)
def test_preferred_encoding(accepted: str, encoding: str | None) -> None:
    assert choose_encoding(accepted) == encoding


@pytest.mark.parametrize(
    ("path", "may"),
    [("/", True), ("/classify", True), ("/v2/models/a/infer", True), ("/v2", False)],
)
def test_what_triton_itself_compresses(path: str, may: bool) -> None:
    assert may_be_compressed(path) is may


def test_load_is_bounded_and_comes_back() -> None:
    load = Load(Limits(in_flight=1, in_flight_bytes=10))
    with load.request() as share, load.request() as late:
        share.take(5)
        share.complete()
        for beyond in (lambda: share.take(1), late.complete, load.request):
            with pytest.raises(Refused) as refusal:
                beyond()
            assert refusal.value.status == 503 and refusal.value.headers["retry-after"]
        with load.request(always=True):
            assert load.requests == 2
    assert (load.requests, load.bytes) == (0, 0)


@pytest.mark.parametrize("megabytes", [64, 300])
def test_a_body_of_the_size_that_is_set_finds_room(megabytes: int, tmp_path: Path) -> None:
    """Also if it is compressed, and hardly smaller by that."""
    words = ["--run-dir", str(tmp_path), "--max-body-mb", str(megabytes)]
    load = Load(read_options(arguments().parse_args(words)).limits)
    with load.request() as share:
        for _ in range(2 * megabytes):
            share.take(MEGABYTE)


class Clock:
    """Which stands still until it is told to go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        patch.setattr("bundle_door.limits.time.monotonic", lambda: self.now)


@dataclass
class Sender:
    """Who sends a body in pieces; or was refused."""

    share: Share
    refused: list[Refused] = field(default_factory=list)


def senders(load: Load, *clients: str) -> list[Sender]:
    found = []
    for client in clients:
        found.append(Sender(load.request()))
        found[-1].share.arrive(client, found[-1].refused.append)
    return found


def test_bodies_that_do_not_come_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes and by their number; the latest first."""
    clock, load = Clock(monkeypatch), Load(Limits(arriving=3, in_flight_bytes=4_700_000))
    first, second, third = senders(load, "a", "a", "a")
    first.share.take(1_000_000)
    clock.now = 1
    second.share.take(1_000_000)
    third.share.take(900_000)
    with pytest.raises(Refused, match="hold 2 MB"):  # nobody is late yet
        third.share.take(900_000)
    clock.now = 1.5
    third.share.take(900_000)
    assert [bool(sender.refused) for sender in (first, second, third)] == [True, False, False]
    (silent,) = senders(load, "a")
    assert load.bytes == 2_800_000 and len(load.arriving) == 3
    clock.now = 1.8  # of a second that the others may pause
    senders(load, "a")
    assert silent.refused[0].status == 503 and not second.refused and load.bytes == 2_800_000


def test_who_holds_most_makes_room_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, load = Clock(monkeypatch), Load(Limits(arriving=3))
    other, *many = senders(load, "b", "a", "a")
    clock.now = 3
    many[0].share.take(100_000)
    clock.now = 5
    senders(load, "c")
    assert [bool(sender.refused) for sender in (other, *many)] == [False, False, True]


def test_an_answer_ends_others_only_where_that_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ended = Clock(monkeypatch), list[str]()
    load = Load(Limits(in_flight_bytes=100))
    with load.hold_answer(10, "a", lambda: ended.append("a")):
        clock.now = 5  # long enough to have read it
        for size, expected in ((90, []), (101, []), (91, ["a"])):
            with load.hold_answer(size, "b", lambda: ended.append("b")):
                assert ended == expected
    assert load.bytes == 0


def test_a_body_that_comes_slowly_for_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, load = Clock(monkeypatch), Load(Limits())
    dripping, steady = senders(load, "a", "b")
    for _ in range(13):
        clock.now += 1
        dripping.share.take(10)
        steady.share.take(4_000)
        load.drop_late()
    assert dripping.refused[0].status == 408 and not steady.refused
    assert load.arriving == {steady.share}


def test_without_an_admin_key_nothing_leads_to_admin_methods() -> None:
    assert "the key" in json.dumps(grpc_routes(Limits(), "the key"))
    passed = grpc_routes(Limits())
    for method in messages.ADMIN_METHODS:
        (route,) = [route for route in passed if route["match"].get("path") == method]
        assert "direct_response" in route


def grpc_routes(limits: Limits, key: str | None = None) -> list[envoy.Config]:
    given = Given(Path("/run"), "127.0.0.1", {"grpc": 1}, key, limits, LOCAL)
    made = envoy.build_door(given, Path("/sockets"))
    (listener,) = made["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    found: list[envoy.Config] = manager["route_config"]["virtual_hosts"][0]["routes"]
    return found


def test_what_a_client_chooses_makes_no_long_line_of_the_log() -> None:
    """A method of HTTP/2 may be as long as all headers together."""
    given = Given(Path("/run"), "127.0.0.1", {"http": 1, "grpc": 2}, None, Limits(), LOCAL)
    logged = json.dumps(envoy.build_door(given, Path("/sockets")))
    assert set(re.findall(r"%(?:REQ|RESP|PATH)\([^)]*\)([^%]*)%", logged)) == {":200"}


def test_a_message_over_grpc_has_an_end() -> None:
    """However slowly it comes; a stream has none."""
    limits = Limits(arrival_s=3, answer_s=4)
    routes = {route["match"].get("path"): route for route in grpc_routes(limits)}
    for path in (messages.HEALTH_METHOD, messages.INFER, *messages.OPEN_METHODS):
        taken = routes[path]["route"]
        assert taken["max_stream_duration"] == {"max_stream_duration": "7s"}
        # A message to infer from, until it is complete.
        assert taken["idle_timeout"] == ("10s" if path == messages.INFER else "9s")
    assert "max_stream_duration" not in routes[messages.STREAM]["route"]


def test_a_message_that_never_finds_room_is_told_that_it_is_too_large() -> None:
    """And not that the server is busy, after which it would come again."""
    most = Limits(body_bytes=MOST_BODY_MB * MEGABYTE).message_bytes
    routes = json.dumps(grpc_routes(Limits(body_bytes=MOST_BODY_MB * MEGABYTE)))
    assert f'{{"max_request_bytes": {most}}}' in routes
    assert most < messages.MOST_TIMES * (messages.ROOM * messages.HEAP_BYTES - most)
    assert most < streams.MOST_BYTES


def test_no_message_passes_under_a_path_that_its_bounds_do_not_know() -> None:
    """Routes leave out what is behind a question mark, and scripts do not."""
    routes = grpc_routes(Limits())
    first = next(at for at, route in enumerate(routes) if "route" in route)
    queries = {"name": ":path", "string_match": {"contains": "?"}}
    assert [queries] in [route["match"].get("headers") for route in routes[:first]]


def test_a_log_is_kept_short_for_all_who_append_to_it(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    with file.open("a") as log:
        print("first", file=log, flush=True)
        keep_log_short(log.fileno(), most=1000)
        assert file.read_text() == "first\n"
        keep_log_short(log.fileno(), most=3)
        print("second", file=log, flush=True)
    assert file.read_text() == "second\n"
    assert (tmp_path / "server.log.1").read_text() == "first\n"


def test_a_log_that_was_removed_or_cannot_be_copied_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    with file.open("a") as log:
        print("first", file=log, flush=True)
        (before := tmp_path / "server.log.1").mkdir()  # as little as a full disk lets it be written
        keep_log_short(log.fileno(), most=3)
        assert file.read_text() == "first\n"
        before.rmdir()
        file.unlink()
        keep_log_short(log.fileno(), most=3)
        assert not os.fstat(log.fileno()).st_size and not [*tmp_path.iterdir()]


def test_the_documentation_of_the_api_can_be_read() -> None:
    """The door reads it when it starts."""
    assert "/classify" in json.loads(documents()["/openapi.json"].body)["paths"]


def test_a_refused_body_is_not_kept() -> None:
    """Not until Python looks for what refers to itself: many refusals together would be a lot."""

    piece = memoryview(bytes(1000))
    kept, arrived = weakref.ref(piece), [piece]
    del piece

    class Whole(Body):
        def __init__(self) -> None:
            pass

        async def read(self) -> Any:
            return arrived.pop() if arrived else b""

    async def refuse(request: Request, named: Mapping[str, str]) -> Answer:
        await asyncio.sleep(0)
        raise Refused(503, "busy")

    async def asked() -> None:
        service = Service([open_to_all("/x", POST=refuse)], Load(Limits()), None, (), Mock())
        answer = await service(Incoming("POST", "/x", "", {}, Whole(), Mock()))
        assert answer.status == 503 and kept() is None

    gc.disable()
    try:
        asyncio.run(asked())
    finally:
        gc.enable()


FORM = "multipart/form-data; boundary=b"


def part(content: bytes = b"x", name: bytes = b'; filename="a.jpg"') -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="f"%s\r\n\r\n%s\r\n' % (name, content)


def form_files(body: bytes, content_type: str = FORM, piece: int = 7) -> list[tuple[str, bytes]]:
    pieces = [body[start : start + piece] for start in range(0, len(body), piece)]
    found = asyncio.run(files(pieces, content_type, limit=3))
    return [(each.name, b"".join(each.content)) for each in found]


FORMS: dict[str, tuple[bytes, list[tuple[str, bytes]]]] = {
    "two files": (part(b"one") + part(b"two"), [("a.jpg", b"one"), ("a.jpg", b"two")]),
    "an empty file": (part(b"", b'; filename=""'), [("", b"")]),
    "a field": (part(b"text", b"") + part(), [("a.jpg", b"x")]),
    "lines and dashes": (part(b"\r\n--\r\n\r\n"), [("a.jpg", b"\r\n--\r\n\r\n")]),
    "a quote in a name": (part(b"x", rb'; filename="a\"b"'), [('a"b', b"x")]),
    "a part without headers": (b"--b\r\n\r\nx\r\n" + part(), [("a.jpg", b"x")]),
    "something before": (b"This is a form.\r\n" + part(), [("a.jpg", b"x")]),
    "a large file": (part(bytes(3 << 20)), [("a.jpg", bytes(3 << 20))]),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("piece", [7, 100_000])
def test_the_files_of_a_form(name: str, piece: int) -> None:
    body, expected = FORMS[name]
    assert form_files(body + b"--b--\r\nafterwards", piece=piece) == expected


BAD_FORMS: dict[str, tuple[bytes, str, int, str]] = {
    "no boundary": (b"", "multipart/form-data", 400, "has no boundary"),
    "a long type": (b"", f'form-data; a="{";" * 3000}"; boundary=b', 400, "has no boundary"),
    "a long boundary": (b"", f"{FORM}{'b' * 70}", 400, "more than 70 characters"),
    "nothing": (b"", FORM, 400, "it has no end"),
    "no end": (part(), FORM, 400, "it has no end"),
    "text behind the boundary": (part(b"\r\n--bX"), FORM, 400, "boundary is in a part"),
    "files": (part() * 4 + b"--b--", FORM, 413, "more than 3 files"),
    "fields": (part(name=b"") * 33 + b"--b--", FORM, 413, "more than 32 fields"),
    "parts without headers": (b"--b\r\n\r\n\r\n" * 33 + b"--b--", FORM, 413, "32 fields"),
    "a large field": (part(bytes(64_001), b"") + b"--b--", FORM, 413, "64000 bytes"),
    "large headers": (b"--b\r\n" + b"a: b\r\n" * 2000 + b"\r\n--b--", FORM, 400, "3000 bytes"),
    "a long header": (b"--b\r\na: " + b"b" * 3001, FORM, 400, "3000 bytes"),
}


@pytest.mark.parametrize("name", BAD_FORMS)
def test_a_form_that_is_refused(name: str) -> None:
    body, content_type, status, cause = BAD_FORMS[name]
    with pytest.raises(Refused, match=cause) as refusal:
        form_files(body, content_type, piece=100_000)
    assert refusal.value.status == status


def test_others_are_served_while_a_form_is_read() -> None:
    async def turns() -> int:
        count = 0
        reading = asyncio.create_task(files([part(bytes(20 << 20)) + b"--b--"], FORM, limit=1))
        while not reading.done():
            count += 1
            await asyncio.sleep(0)
        return count

    assert asyncio.run(turns()) >= 20


@pytest.mark.parametrize("accepted", ["", "gzip"])
def test_a_cache_gives_an_answer_to_those_alone_that_can_read_it(accepted: str) -> None:
    async def show(request: Request, named: Mapping[str, str]) -> Answer:
        return Answer(b"x")

    service = Service(
        [open_to_all("/x", GET=show)], Load(Limits()), None, ["https://a.example"], Mock()
    )
    headers = {"accept-encoding": accepted, "origin": "https://a.example"}
    incoming = Incoming("GET", "/x", "", headers, Body(cast(Any, None)), Mock())
    answer = asyncio.run(service(incoming))
    assert answer.headers.get("content-encoding", "") == accepted
    assert answer.headers["vary"] == "Accept-Encoding, Origin"


def test_others_are_served_while_an_answer_is_compressed() -> None:
    async def turns() -> int:
        count = 0
        compressing = asyncio.create_task(encode_answer(Answer(bytes(20 << 20)), "gzip"))
        while not compressing.done():
            count += 1
            await asyncio.sleep(0)
        assert gzip.decompress(compressing.result().body) == bytes(20 << 20)
        return count

    assert asyncio.run(turns()) >= 20


def test_no_classes_are_made_of_texts() -> None:
    config = pb.ModelConfigResponse().config
    config.input.add(name="INPUT", data_type=DATA_TYPES.Value("TYPE_UINT8"), dims=[-1])
    config.output.add(name="LABEL", data_type=TEXTS, label_filename="labels.txt")
    assert signature_of(config).output == ""
    config.output.add(name="SCORES", data_type=DATA_TYPES.Value("TYPE_FP32"))
    assert signature_of(config).output == "SCORES"


class Counting:
    """A Triton that answers, and that can do so for several at once."""

    asked = most = answered = 0

    async def signature(self, model: str, version: str) -> Signature:
        return Signature("INPUT", "UINT8", (-1,), batches=True, output="OUTPUT")

    async def infer(self, model: str, asked: Asked, *_: Any) -> pb.ModelInferResponse:
        self.asked += 1
        self.answered += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(0)
        self.asked -= 1
        found = pb.ModelInferResponse(raw_output_contents=[b"\7\0\0\0" + b"0.9:1:a"])
        found.outputs.add(name="OUTPUT", datatype="BYTES", shape=[1, 1])
        return found


def test_the_files_of_a_form_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bundle_door.paths.plain.MOST_FILES", 200)
    triton = Counting()
    plain = PlainQuestions(triton, Steps(lambda report: None))  # type: ignore[arg-type]
    form = Request("POST", "/classify", {"content-type": FORM}, chunks=[part() * 200 + b"--b--"])
    results = json.loads(asyncio.run(plain.classify(form, {"model": "m"})).body)["results"]
    assert len(results) == 200 and all(each["labels"][0]["label"] == "a" for each in results)
    assert triton.most == AT_ONCE


@pytest.mark.parametrize(("at_once", "asked"), [(1, 3), (2, 4)])
def test_the_pictures_of_a_form_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch, at_once: int, asked: int
) -> None:
    """By what the steps report of each: those that come after too much are not asked for."""
    monkeypatch.setattr("bundle_door.paths.plain.AT_ONCE", at_once)

    class Reporting(Counting):
        async def infer(self, model: str, asked: Asked, *_: Any) -> pb.ModelInferResponse:
            message = pb.ModelInferRequest.FromString(b"".join(asked.pieces))
            size = len(message.raw_input_contents[0])
            # In a batch with somebody else's, which counts for that one.
            pictures = [(size + 1, 9000, 5000, 1.0, 5.0), (size, 4000, 3000, 1.0, 0.4)]
            steps.take(Report("decoding", "1", 2, 2, 0, 1, 2, [message.id], pictures=pictures))
            return await super().infer(model, asked)

    steps, triton = Steps(lambda report: None), Reporting()
    plain = PlainQuestions(triton, steps)  # type: ignore[arg-type]
    form = Request("POST", "/classify", {"content-type": FORM}, chunks=[part() * 9 + b"--b--"])
    answer = asyncio.run(plain.classify(form, {"model": "m"}))
    results = json.loads(answer.body)["results"]
    assert answer.status == 200
    assert ["labels" in each for each in results] == [True] * asked + [False] * (9 - asked)
    assert triton.answered == asked
    assert "MAX_MEGAPIXELS" in results[-1]["error"]["remedy"]


def test_a_card_that_goes_while_it_is_asked_for_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, route = routes.of_documents(tmp_path)
    gone = {"/page/cards/sum.js": tmp_path / "sum.js"}
    monkeypatch.setattr("bundle_door.documents.find_own_cards", lambda repository: gone)

    async def ask() -> None:
        await route.handlers["GET"](Request("GET", "/", {}), {"card": "sum.js"})

    with pytest.raises(Refused, match="no such card"):
        asyncio.run(ask())


@pytest.mark.parametrize("before", ["", "in ensemble 'e', ", "[request id: door.0-1f] "])
@pytest.mark.parametrize("ensemble", ["", "in ensemble 'e', "])
def test_what_triton_puts_before_a_cause_is_left_out(before: str, ensemble: str) -> None:
    told = why(Refused(503, f"{before}{ensemble}Exceeds maximum queue size"))
    assert told["cause"] == "Exceeds maximum queue size"


def test_origins_are_those_that_browsers_send() -> None:
    assert read_origins("https://A.example, http://b:80") == ("https://a.example", "http://b:80")


class Refusing(Counting):
    """As Triton words it, with the id of the request."""

    async def infer(self, model: str, asked: Asked, *_: Any, **__: Any) -> pb.ModelInferResponse:
        found = pb.ModelInferRequest.FromString(b"".join(asked.pieces))
        raise Refused(503, f"[request id: {found.id}] Exceeds maximum queue size", {"a": "b"})


def test_a_form_that_is_refused_has_the_headers_of_a_refusal() -> None:
    plain = PlainQuestions(Refusing(), Steps(lambda report: None))  # type: ignore[arg-type]
    form = Request("POST", "/classify", {"content-type": FORM}, chunks=[part() * 2 + b"--b--"])
    answer = asyncio.run(plain.classify(form, {"model": "m"}))
    assert (answer.status, answer.headers["a"]) == (503, "b")


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(("given", "told"), [("x", "x"), ("", "<id_unknown>")])
def test_the_doors_own_id_is_in_no_refusal(is_own: bool, given: str, told: str) -> None:
    api = Api(Refusing(), Steps(lambda report: None), "nobodys")  # type: ignore[arg-type]
    text, _ = body(TENSOR, id=given)
    note = Note("", is_own=is_own)
    request = Request("POST", "/", {}, {"timings": "1"}, [text], note=note)

    async def ask() -> None:
        await api.infer(request, {"model": "m", "version": ""})

    with pytest.raises(Refused, match=f"^.request id: {told}. Exceeds") as refusal:
        asyncio.run(ask())
    assert (refusal.value.status, refusal.value.headers) == (503, {"a": "b"})


def test_cards_in_the_repository_are_on_the_page(tmp_path: Path) -> None:
    page = documents()["/"]
    assert add_cards(page, None) is add_cards(page, tmp_path) is page
    for version in ("9", "10", "1.bak"):
        for name in ("sum.js", "sum.css", "notes.txt"):
            card = tmp_path / "adder" / version / "page" / name
            card.parent.mkdir(parents=True, exist_ok=True)
            card.touch()
    newest = tmp_path / "adder" / "10" / "page"
    assert find_own_cards(tmp_path) == {
        f"/page/cards/{name}": newest / name for name in ("sum.js", "sum.css")
    }
    shown = add_cards(page, tmp_path)
    assert b'src="page/cards/sum.js"></script>' in shown.body
    assert b'href="page/cards/sum.css">' in shown.body
    assert shown.headers["etag"] != page.headers["etag"]


@pytest.mark.parametrize(
    ("headers", "chunks", "why"),
    [
        ({"content-type": FORM}, [part() + b"--b--"], "a form"),
        ({"content-type": FORM.title()}, [part() + b"--b--"], "a form"),
        ({}, [], "empty"),
    ],
)
def test_sentiment_takes_the_text_itself(
    headers: dict[str, str], chunks: list[bytes], why: str
) -> None:
    plain = PlainQuestions(Counting(), Steps(lambda report: None))  # type: ignore[arg-type]
    answer = asyncio.run(
        plain.sentiment(Request("POST", "/sentiment", headers, {}, chunks), {"model": "m"})
    )
    remedy = "send the text as it is: curl --data 'What a day!'"
    expected = {"error": {"cause": f"the body is {why}", "remedy": remedy}}
    assert (answer.status, json.loads(answer.body)) == (400, expected)
