"""How a candidate that answers copies of real requests compares with the live version."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter as Tally
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bundle_door.answers import Answer
from bundle_door.wire.inference import HEADER_LENGTH

SAME, DIFFERS, FAILED, LEFT_OUT = "same", "differs", "failed", "left out"
# Of each change of a label some requests; of different changes so many; and of the last times.
MOST_EXAMPLES, MOST_CHANGES, LAST_TIMES = 5, 200, 2000
MOST_JSON = 1_000_000
# Of the classification extension: "0.93:281:tabby".
LABELLED = re.compile(r"([0-9.e+-]+):[0-9]+:(.*)", re.DOTALL)
LENGTH_BYTES = 4  # before each text of a binary tensor


class Compared(msgspec.Struct):
    """One request, by both."""

    model: str
    version: str
    outcome: str
    id: str = ""
    # What each says it is, by how much its probability moved, and how long each took.
    live: str = ""
    candidate: str = ""
    moved: float = 0.0
    seconds: tuple[float, float] = (0.0, 0.0)


@dataclass
class Shadow:
    """A candidate, so far."""

    counts: Tally[str] = field(default_factory=Tally)
    changes: Tally[tuple[str, str]] = field(default_factory=Tally)
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    moved: float = 0.0
    times: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LAST_TIMES))

    def add(self, compared: Compared) -> None:
        self.counts[compared.outcome] += 1
        if compared.outcome == LEFT_OUT:
            return
        change = compared.live, compared.candidate
        if compared.outcome != SAME and (change in self.changes or self._has_room()):
            self.changes[change] += 1
            known = self.examples.setdefault(change, [])
            if len(known) < MOST_EXAMPLES:
                known.append(compared.id)
        if compared.outcome != FAILED:
            self.moved += compared.moved
            self.times.append(compared.seconds)

    def _has_room(self) -> bool:
        return len(self.changes) < MOST_CHANGES

    def sum_up(self, model: str, version: str) -> dict[str, Any]:
        """For the page."""
        most = self.changes.most_common(1)
        return {
            "model": model, "version": version, "counts": dict(self.counts),
            "most": most[0][0] if most else None,
        }  # fmt: skip

    def as_json(self, model: str, version: str) -> dict[str, Any]:
        changes = [
            {"live": live, "candidate": candidate, "count": count,
             "ids": self.examples[live, candidate]}
            for (live, candidate), count in self.changes.most_common()
        ]  # fmt: skip
        return {
            "model": model, "version": version, "counts": dict(self.counts), "changes": changes,
            "moved": self.moved, "seconds": list(self.times),
        }  # fmt: skip


def read_gist(answer: Answer) -> tuple[str, float] | None:
    """What an answer says it is, and how sure it is: of several pictures, all of them. None of one
    that says no such thing."""
    length = int(answer.headers.get(HEADER_LENGTH, len(answer.body)))
    if length > MOST_JSON:
        return None
    try:
        said = json.loads(answer.body[:length])
    except ValueError:
        return None
    if "results" in said:
        firsts = [each.get("labels", [{}])[0] for each in said["results"]]
        return ", ".join(str(each.get("label", "")) for each in firsts), 0.0
    if "labels" in said:
        return said["labels"][0]["label"], said["labels"][0]["probability"]
    if "label" in said:
        return said["label"], said["score"]
    return _read_outputs(said.get("outputs", []), answer.body[length:])


def _read_outputs(outputs: Sequence[Mapping[str, Any]], binary: bytes) -> tuple[str, float] | None:
    """The first text, else which of the first output's numbers is the largest."""
    found: list[Any] = []
    for output in outputs:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        own, binary = binary[:size], binary[size:]
        found.append(output.get("data") or _from_bytes(output["datatype"], own))
    texts = [each[0] for each in found if each and isinstance(each[0], str)]
    if texts:
        labelled = LABELLED.fullmatch(texts[0])
        return (labelled[2], float(labelled[1])) if labelled else (texts[0], 0.0)
    numbers = next((each for each in found if len(each) > 1 and isinstance(each[0], float)), None)
    if numbers is None:
        return None
    most = max(numbers)
    return f"class {list(numbers).index(most)}", most


def _from_bytes(datatype: str, content: bytes) -> Sequence[Any]:
    if datatype == "FP32":
        return array("f", content[: len(content) // 4 * 4])
    if datatype == "BYTES" and content:
        size = int.from_bytes(content[:LENGTH_BYTES], "little")
        return [content[LENGTH_BYTES : LENGTH_BYTES + size].decode(errors="replace")]
    return []
