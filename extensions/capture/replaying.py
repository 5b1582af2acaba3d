"""Asks again what was asked, each at its own time, and compares what was answered then and now."""

from __future__ import annotations

import http.client
import json
import re
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import cycle
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from bundle_door.settings import plain_class
from bundle_door.watching.captures import Record
from bundle_serving.address import Address
from bundle_serving.protocol.gists import HEADER_LENGTH, read_gist
from extensions.capture.kept import Kept, name_file, name_folder
from scripts.artefacts import samples
from scripts.base.errors import UserError
from scripts.evaluation.sequential import (
    CERTAINTY,
    count_share,
    find_lower_bound,
    find_quantile_bounds,
    find_upper_bound,
)
from scripts.evaluation.share import Share
from scripts.server.triton.triton_api import Missing

TOGETHER, TIMEOUT_S = 64, 60
LOOK_S = 1.0
KSERVE, PLAIN = "/v2/models/", "/classify"
OVER_GRPC = "/inference.GRPCInferenceService/ModelInfer"
WORD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
# In the file, or as `make logs` shows it.
LINE = re.compile(r"(\S+) door(?::|  ) *(\w+=.*)")

SURE = f"with {100 * CERTAINTY:g}% certainty"
MOST_SHOWN = 5


@dataclass(frozen=True)
class Past:
    """What was asked, and what became of it."""

    id: str
    at: float
    path: str
    read: Callable[[], bytes]
    ms: float
    type: str = ""
    head: str = ""
    label: str = ""
    pipeline: str = ""
    is_refused: bool = False

    @classmethod
    def of_record(cls, record: Record, kept: Kept) -> Past:
        at = datetime.fromisoformat(record["time"]).timestamp()
        label = record["labels"][0][0] if record["labels"] else ""
        about = (record["ms"], record["type"], record["head"], label, record["pipeline"])
        return cls(record["id"], at, record["path"], lambda: kept.read(record), *about)


@dataclass(frozen=True)
class Present:
    ms: float
    label: str
    fault: str = ""


def read_kept(kept: Kept) -> list[Past]:
    pasts = [Past.of_record(record, kept) for record in kept.open_all()]
    return sorted(pasts, key=lambda past: past.at)


def read_log(path: Path, pictures: Path) -> list[Past]:
    """Of a log of the door's, as text or JSON: what was asked of a model, each time about the next
    of these pictures."""
    files = cycle(samples.read(pictures, samples.MOST_PICTURES, "IMAGES"))
    pasts = [past for line in read_lines(path) if (past := _of_line(line, files))]
    if not pasts:
        raise UserError(f"{path} has no requests", "name a log, as make logs shows it: OF=log.txt")
    return sorted(pasts, key=lambda past: past.at)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
        elif written := LINE.search(line):
            when, words = written.groups()
            found = {name: json.loads(text) if text[0] == '"' else text
                     for name, text in WORD.findall(words)}  # fmt: skip
            yield {"time": when, **found}


def _of_line(line: dict[str, Any], files: Iterator[bytes]) -> Past | None:
    path, model, ms = line.get("path", ""), line.get("pipeline"), float(line.get("ms", 0))
    if not model or not path.startswith((KSERVE, PLAIN, OVER_GRPC)):
        return None
    plain, picture = path.startswith(PLAIN), next(files)
    status = str(line.get("status"))
    at = datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp() - ms / 1000
    asked = f"{PLAIN}?model={model}" if plain else f"{KSERVE}{model}/infer"
    is_refused = status != "OK" and not status.startswith("2")
    id, read = line.get("id", ""), lambda: picture
    return Past(id, at, asked, read, ms, pipeline=model, is_refused=is_refused)


def ask_instead(past: Past, instead: str) -> Past:
    """The same of another model."""
    if past.path.startswith(KSERVE):
        own, others = f"{KSERVE}{past.pipeline}/", f"{KSERVE}{instead}/"
        return replace(past, path=past.path.replace(own, others))
    path, _, query = past.path.partition("?")
    words = [word for word in query.split("&") if word and not word.startswith("model=")]
    return replace(past, path=f"{path}?{'&'.join([*words, f'model={instead}'])}")


def replay(
    pasts: Sequence[Past], address: Address, speed: float, tell: Callable[[int], object]
) -> tuple[list[Past], list[Present]]:
    """A request that waits, since others wait too long, counts from when it was due. Those that
    have gone meanwhile are left out. `tell` is called at least once a second."""
    first, began, own = pasts[0].at, time.monotonic(), threading.local()

    def ask(past: Past, due: float) -> Present | None:
        if not hasattr(own, "connection"):
            own.connection = address.connection(TIMEOUT_S)
        headers = {"content-type": past.type, **address.uncounted_headers}
        if past.path.startswith(KSERVE):
            headers[HEADER_LENGTH] = str(len(past.head.encode()))
        label, fault = "", ""
        try:
            body = past.head.encode() + past.read()
        except Missing:
            return None
        if has_ended(own.connection):
            own.connection.close()  # the next request opens it again
        try:
            own.connection.request("POST", past.path, body, headers)
            given = own.connection.getresponse()
            named = {name.lower(): value for name, value in given.getheaders()}
            gist = read_gist(given.read(), named)
            label = gist[0] if gist else ""
            fault = "" if given.status < 400 else f"HTTP {given.status}"
        except (OSError, http.client.HTTPException) as raised:
            own.connection.close()
            fault = str(raised) or type(raised).__name__
        return Present(1000 * (time.monotonic() - due), label, fault)

    with ThreadPoolExecutor(TOGETHER) as pool:
        asked = []
        try:
            for number, past in enumerate(pasts, 1):
                due = began + (past.at - first) / speed
                while (left := due - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_S))
                    tell(number - 1)
                asked.append(pool.submit(ask, past, due))
                tell(number)
            while wait(asked, LOOK_S).not_done:
                tell(len(pasts))
        except BaseException:  # what has not begun is not asked any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        both = [
            (past, now) for past, each in zip(pasts, asked, strict=True) if (now := each.result())
        ]
        return [past for past, _ in both], [now for _, now in both]


def has_ended(connection: http.client.HTTPConnection) -> bool:
    """While it is idle, a server says nothing but that."""
    return bool(connection.sock and select.select([connection.sock], [], [], 0)[0])


@dataclass(frozen=True)
class Compared:
    pasts: Sequence[Past]
    presents: Sequence[Present]
    labels: Mapping[str, str]  # by the request, as its file is called

    def list_rows(self) -> list[tuple[str, str, str]]:
        then = [past.ms for past in self.pasts if not past.is_refused]
        now = [each.ms for each in self.presents if not each.fault]
        total = len(self.pasts)
        rows = [
            ("answered", f"{len(then):,}", f"{len(now):,}"),
            ("refused", f"{total - len(then):,}", f"{total - len(now):,}"),
            ("p50, ms", find_percentile(then, 50), find_percentile(now, 50)),
            ("p99, ms", find_percentile(then, 99), find_percentile(now, 99)),
        ]
        judged = [pair for pair in self._pairs if name_file(pair[0].id) in self.labels]
        if judged:
            old = Share(sum(self._is_right(past, past.label) for past, _ in judged), len(judged))
            new = Share(sum(self._is_right(past, now.label) for past, now in judged), len(judged))
            rows.append(("right", f"{old.value:.1%}", f"{new.value:.1%}"))
        return rows

    @property
    def _pairs(self) -> list[tuple[Past, Present]]:
        return [*zip(self.pasts, self.presents, strict=True)]

    def _is_right(self, past: Past, label: str) -> bool:
        truth = self.labels[name_file(past.id)]
        return plain_class(name_folder(label)) == plain_class(name_folder(truth))

    def list_notes(self) -> list[str]:
        both = [(past, now) for past, now in self._pairs if past.label and not now.fault]
        changes: dict[tuple[str, str], list[str]] = {}
        for past, now in both:
            if past.label != now.label:
                changes.setdefault((past.label, now.label), []).append(past.id)
        told = [describe_changes(sum(map(len, changes.values())), len(both))] if both else []
        most = sorted(changes.items(), key=lambda each: -len(each[1]))[:MOST_SHOWN]
        told += [f"{len(ids):,} times {new}, not {old}, as in {ids[0]}" for (old, new), ids in most]
        times = [each.ms for each in self.presents if not each.fault]
        low, high = find_quantile_bounds(times, 0.99)
        if isfinite(high):
            told.append(f"{SURE} a p99 between {max(low, 0):.0f} and {high:.0f} ms")
        faults = Counter(each.fault for each in self.presents if each.fault)
        return told + [f"{count:,} times: {fault}" for fault, count in faults.most_common()]


def find_percentile(ms: Sequence[float], at: int) -> str:
    return f"{np.percentile(ms, at):.0f}" if ms else ""


def describe_changes(count: int, of: int) -> str:
    share = count_share(count, of)
    low, high = find_lower_bound(share), find_upper_bound(share)
    return (
        f"{count:,} of {of:,} labels changed; {SURE} between {100 * low:.1f}% and"
        f" {100 * high:.1f}% of such requests"
    )
