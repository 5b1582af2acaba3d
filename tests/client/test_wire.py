import numpy as np
import pytest

from bundle_client import Client, Label, ServerFault, SourceError
from bundle_client.answers import LABELS, as_array, parse_label, question, read_labels


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        (b"0.845063:504:coffee mug", Label(504, "coffee mug", 0.845063)),
        (b"0.5:7:ratio 1:2", Label(7, "ratio 1:2", 0.5)),
        (b"0.5:7", Label(7, "", 0.5)),
        (b"1e-05:0:caf\xc3\xa9", Label(0, "café", 1e-05)),
        (b"0.5:1:\xff", Label(1, "\ufffd", 0.5)),
        ("0.5:1:mug (untrained weights)", Label(1, "mug (untrained weights)", 0.5)),
    ],
)
def test_a_label_is_read_whatever_it_holds(entry: bytes | str, label: Label) -> None:
    assert parse_label(entry) == label


@pytest.mark.parametrize("entry", [b"", b"mug", b"0.5:mug", b"x:1:mug", np.float32(0.5)])
def test_what_is_no_label_is_the_servers_fault(entry: object) -> None:
    with pytest.raises(ServerFault, match="cannot parse"):
        parse_label(entry)


class Answer:
    def __init__(self, output: object) -> None:
        self.output = output

    def as_numpy(self, name: str) -> object:
        return self.output if name == "OUTPUT" else None


def test_labels_keep_their_order() -> None:
    output = np.array([[b"0.9:2:two", b"0.1:1:one"]], dtype=object)
    assert read_labels(Answer(output)) == (Label(2, "two", 0.9), Label(1, "one", 0.1))


@pytest.mark.parametrize("output", [None, np.empty((1, 0), dtype=object)])
def test_an_answer_without_labels_is_the_servers_fault(output: object) -> None:
    with pytest.raises(ServerFault, match="no labels"):
        read_labels(Answer(output))


def test_labels_in_json_keep_their_order() -> None:
    output = {"name": "OUTPUT", "data": ["0.9:2:two", "0.1:1:one"]}
    assert read_labels({"outputs": [output]}) == (Label(2, "two", 0.9), Label(1, "one", 0.1))


@pytest.mark.parametrize("outputs", [None, [], [{"name": "OUTPUT"}], [{"name": "X", "data": [1]}]])
def test_json_without_labels_is_the_servers_fault(outputs: object) -> None:
    with pytest.raises(ServerFault, match="no labels"):
        read_labels({"outputs": outputs})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_question_holds_the_bytes_as_they_are(protocol: str) -> None:
    tensors = pytest.importorskip(f"tritonclient.{protocol}")
    asked = question(tensors, LABELS, "model", b"\x00\xffpicture", 3)
    (tensor,) = asked["inputs"]
    assert (tensor.name(), tensor.datatype(), list(tensor.shape())) == ("INPUT", "UINT8", [1, 9])
    assert asked["model_name"] == "model"
    assert asked["outputs"][0].name() == "OUTPUT"


@pytest.mark.parametrize(
    ("datatype", "asked", "cause"),
    [
        ("FP32", "mug.jpg", "these are not pixels"),
        ("FP32", np.zeros((4, 4)), r"an array \[4, 4\] is not a picture"),
        ("BYTES", ["half of \ud83d"], "the text cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_not_the_servers_fault(
    datatype: str, asked: object, cause: str
) -> None:
    with pytest.raises(SourceError, match=cause):
        as_array(datatype, asked)


def test_no_texts_are_not_asked_about() -> None:
    assert Client("localhost:1").sentiment() == []
