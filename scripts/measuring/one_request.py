"""One request: what was answered, and where its time went between client, wire, door and steps.

Client and door measure by clocks of their own. What the client waited beyond the door's total is
the wire; half of it is drawn before the door and half after it."""

import http.client
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bundle_serving import infer
from bundle_serving.address import Address
from bundle_serving.infer import Answer, Question
from scripts.base.errors import UserError
from scripts.base.tables import Bar, Row
from scripts.stacks import state

TIMEOUT_S = 60
# What an answer of /classify calls what it found, and how much of it each has.
SHARES = {"labels": "probability", "boxes": "score", "areas": "share"}
# Of an output that has more.
MOST_VALUES = 3

CLIENT, WIRE, DOOR, STEP = "client", "wire", "door", "step"
ENTRY = re.compile(r"([\w.-]+);dur=([\d.]+)(?:;start=([\d.]+))?")


@dataclass(frozen=True)
class Span:
    where: str
    name: str
    start: float  # ms
    ms: float

    @property
    def end(self) -> float:
        return self.start + self.ms


def ask_traced(
    address: Address, model: str, prepare: Callable[[], Question], has_files: bool, trace: str
) -> tuple[str, list[Span]]:
    times = [time.perf_counter()]
    question = prepare()
    is_file = has_files and is_one_file(question)
    path, body, length = make_request(model, question, is_file)
    times.append(time.perf_counter())
    connection = address.connection(TIMEOUT_S)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01", **length}
    try:
        connection.connect()
        times.append(time.perf_counter())
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        content = response.read()
        times.append(time.perf_counter())
    except (OSError, http.client.HTTPException) as fault:
        raise UserError(f"{address} does not answer: {fault}", "see make logs") from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise explain_refusal(response.status, content)
    timings = read_timings(response.headers.get("server-timing", ""))
    if not timings:
        raise UserError(
            "the server does not say where the time went", f"restart it: {state.name_start()}"
        )
    began, prepared, connected, ended = (1000 * each for each in times)
    before = {"preparing the request": prepared - began, "connecting": connected - prepared}
    if is_file:
        described = describe_best(json.loads(content))
    else:
        described = describe_outputs(infer.read_answer(content, response.headers.get(infer.LENGTH)))
    return described, spans(before, ended - connected, timings)


def is_one_file(question: Question) -> bool:
    """Whether a picture or sound is asked about as a file, and not as its pixels."""
    return [(each.dtype.name, each.ndim) for each in question.values()] == [("uint8", 2)]


def make_request(
    model: str, question: Question, is_file: bool
) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers: /classify takes files, and says what was found."""
    name = quote(model, safe="")
    if is_file:
        (tensor,) = question.values()
        return f"/classify?top=1&model={name}", tensor.tobytes(), {}
    return f"/v2/models/{name}/infer?timings=1", *infer.write_request(question)


def describe_best(answer: Mapping[str, Any]) -> str:
    """The first of its labels, boxes or areas, of which there may be none."""
    key, share = next(each for each in SHARES.items() if each[0] in answer)
    if not answer[key]:
        return f"no {key}"
    best = answer[key][0]
    return f"{best['label'] or best.get('index')}, {best[share]:.1%}"


def describe_outputs(answer: Answer) -> str:
    """The first values of each tensor."""
    described = []
    for name, tensor in answer.items():
        values = [show_value(each) for each in tensor.ravel()[:MOST_VALUES].tolist()]
        described.append(" ".join([name, *values, *(["…"] if tensor.size > MOST_VALUES else [])]))
    return ", ".join(described)


def show_value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def explain_refusal(status: int, content: bytes) -> UserError:
    try:
        error = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        error = f"HTTP {status}"
    if isinstance(error, dict):
        return UserError(error["cause"], error["remedy"])
    cause, _, remedy = str(error).partition("; ")
    return UserError(cause, remedy or "see make logs")


def read_timings(header: str) -> dict[str, Any]:
    """What Server-Timing says: the total, and what of it was spent where; nothing if it is not the
    door's."""
    entries = [found.groups() for found in ENTRY.finditer(header)]
    totals = [float(ms) for name, ms, start in entries if name == "total" and start is None]
    found = [
        {"name": name, "start_ms": float(start), "ms": float(ms)}
        for name, ms, start in entries
        if start is not None
    ]
    return {"total_ms": totals[0], "spans": found} if totals and found else {}


def spans(before: Mapping[str, float], asked_ms: float, timings: Mapping[str, Any]) -> list[Span]:
    """What the client did before it asked, by name; how long it then waited; what the door says.
    One follows the other: together they are the total, but for steps at the same time."""
    found, at = [], 0.0
    for name, ms in before.items():
        found.append(Span(CLIENT, name, at, ms))
        at += ms
    wire = max(0.0, asked_ms - timings["total_ms"])
    found.append(Span(WIRE, "to the door", at, wire / 2))
    found += _in_the_door(timings, at + wire / 2)
    return [*found, Span(WIRE, "and back", at + asked_ms - wire / 2, wire / 2)]


def _in_the_door(timings: Mapping[str, Any], began: float) -> Iterator[Span]:
    until = 0.0
    for each in timings["spans"]:
        if each["start_ms"] > until:
            yield Span(DOOR, "waiting, hand-over", began + until, each["start_ms"] - until)
        received = each["name"] == "received"
        where, name = (DOOR, "receiving the request") if received else (STEP, each["name"])
        yield Span(where, name, began + each["start_ms"], each["ms"])
        until = max(until, each["start_ms"] + each["ms"])
    if timings["total_ms"] > until:
        yield Span(DOOR, "waiting, hand-over", began + until, timings["total_ms"] - until)


def list_rows(found: Sequence[Span]) -> Iterator[Row]:
    """Each bar where its span lies in the whole."""
    total = max(each.end for each in found)
    for each in found:
        yield each.where, each.name, f"{each.ms:.1f}", Bar(each.start / total, each.end / total)
    yield "total", "", f"{total:.1f}"
