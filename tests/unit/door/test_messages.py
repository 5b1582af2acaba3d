"""What a message over gRPC may ask, as the door's streams see it; Envoy's Lua sees the same in
tests/door/test_attacks.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.torture.messages import hostile
from benchmark.torture.requests import Target
from bundle_door.answers import Refused
from bundle_door.front import messages
from bundle_door.limits import MOST_ID, MOST_NAME, MOST_PARAMETERS, MOST_TENSORS, MOST_VALUES
from bundle_serving.protocol.kserve import pb

HOSTILE = hostile(Target("echo", {}, b""))


def largest() -> pb.ModelInferRequest:
    """As much of all as may be."""
    message = pb.ModelInferRequest(model_name="m" * MOST_NAME, id="i" * MOST_ID)
    for number in range(MOST_TENSORS):
        message.inputs.add(name=f"{number}", datatype="BYTES", shape=[2**62] * 32)
        message.outputs.add(name=f"{number}")
        message.raw_input_contents.append(bytes(1000))
    for number in range(MOST_PARAMETERS):
        message.parameters[f"{number}"].string_param = 4000 * "x"
        message.inputs[0].parameters[f"{number}"].double_param = number
    message.inputs[1].contents.bytes_contents.extend(3000 * [b"text"])
    message.inputs[2].contents.fp32_contents.extend(100_000 * [1.5])
    return message


def test_as_much_as_may_be() -> None:
    messages.check(b"")
    messages.check(largest().SerializeToString())


def test_one_more_of_anything() -> None:
    changes: dict[str, Callable[[Any], object]] = {
        "inputs": lambda message: message.inputs.add(),
        "outputs": lambda message: message.outputs.add(),
        "raw_input_contents": lambda message: message.raw_input_contents.append(b""),
        "parameters": lambda message: message.parameters["more"].MergeFrom(pb.InferParameter()),
        "an id of 129 bytes": lambda message: setattr(message, "id", 129 * "i"),
        "a name of 257 bytes": lambda message: setattr(message.outputs[3], "name", 257 * "n"),
        "a shape": lambda message: message.inputs[1].shape.extend([2**62] * 32),
        f"more than {MOST_VALUES} values": lambda message: message.inputs[
            5
        ].contents.bytes_contents.extend(1000 * [b""]),
    }
    for why, change in changes.items():
        message = largest()
        change(message)
        with pytest.raises(Refused, match=why):
            messages.check(message.SerializeToString())


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile(name: str) -> None:
    with pytest.raises(Refused) as refusal:
        messages.check(HOSTILE[name])
    assert refusal.value.status == 400


def test_values_before_a_script_are_lua_s() -> None:
    """Which does not know JSON's escapes of letters, as in a folder's name."""
    at = Path("/srv/über alles")
    written = messages.write_arrivals(at_door=True, shared=at / "room").splitlines()
    assert f'local SHARED = "{at}/room"' in written and "local CLIENT = nil" in written
    assert "local GATHERS = true" in written and "local MOST_OF_ONE = math.huge" in written
    assert 'local MESSAGE = {[1] = {["what"] = "a name", ' in messages.write_asked()
