"""What an answer says in short: labels and how sure it is of them, whichever way it was asked."""

import heapq
import json
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

HEADER_LENGTH = "inference-header-content-length"
MOST_JSON, MOST_LABELS = 1_000_000, 5
# So many numbers may be of classes; to look through more would hold the door up.
MOST_CLASSES = 100_000
# Of the classification extension: "0.93:281:tabby".
LABELLED = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?):[0-9]+:(.*)", re.DOTALL)
LENGTH = struct.Struct("<I")


def read_gist(body: bytes, headers: Mapping[str, str]) -> tuple[str, float] | None:
    """What an answer says it is, and how sure it is: of several pictures, all of them. None of one
    that says no such thing."""
    return next(iter(read_labels(body, headers)), None)


def read_labels(body: bytes, headers: Mapping[str, str]) -> Sequence[tuple[str, float]]:
    """What an answer says that it may be, the likeliest first. `headers` in lower case.

    In JSON, what is no number is null."""
    length = int(headers.get(HEADER_LENGTH, len(body)))
    if length > MOST_JSON:
        return ()
    try:
        said = json.loads(body[:length])
    except ValueError:
        return ()
    if "results" in said:
        firsts = [each.get("labels", [{}])[0] for each in said["results"]]
        return [(", ".join(str(each.get("label", "")) for each in firsts), 0.0)]
    if "labels" in said:
        return [(each["label"], each["probability"] or 0.0) for each in said["labels"]]
    if "label" in said:
        return [(said["label"], said["score"] or 0.0)]
    return _read_outputs(said.get("outputs", []), body[length:])


def _read_outputs(
    outputs: Sequence[Mapping[str, Any]], binary: bytes
) -> Sequence[tuple[str, float]]:
    """The first texts, else the largest of the first output's numbers that may be of classes."""
    found: list[Any] = []
    for output in outputs:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        own, binary = binary[:size], binary[size:]
        found.append(output.get("data") or _from_bytes(output["datatype"], own))
    texts = next((each for each in found if each and isinstance(each[0], str)), None)
    if texts:
        labelled = [LABELLED.fullmatch(text) for text in texts]
        told = [(each[2], float(each[1])) for each in labelled if each]
        return told or [(texts[0], 0.0)]
    of_classes = (each for each in found if 1 < len(each) <= MOST_CLASSES)
    numbers = next((each for each in of_classes if isinstance(each[0], float)), ())
    likeliest = heapq.nlargest(MOST_LABELS, enumerate(numbers), key=lambda each: each[1] or 0.0)
    return [(f"class {at}", share or 0.0) for at, share in likeliest]


def _from_bytes(datatype: str, content: bytes) -> Sequence[Any]:
    if datatype == "FP32":
        return array("f", content[: len(content) // 4 * 4])
    return list(islice(read_texts(content), MOST_LABELS)) if datatype == "BYTES" else []


def read_texts(content: bytes) -> Iterator[str]:
    """Of a tensor of BYTES: each has its length before it."""
    at = 0
    while at < len(content):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(content, at)[0]
        yield content[begin:at].decode(errors="replace")
