"""Lines of Triton, the keeper and the door, in one form and in the order of their times."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from scripts.base.text import printable

# bundle_serving.process.server_log
OURS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (\w+): (.*)")
AS_JSON = re.compile(r'\{"time":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z","source":"(\w+)",.*')
# I1120 12:27:37.262297 107 server.cc:674] "…", without a year and in UTC
TRITON = re.compile(r"([IWEF])(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{3})\d* \d+ (.*)")
# Before each line of a swarm's: NAME_server.2.ID@node    | the line
# or of those on every node, NAME_balancer.NODE.ID@node    | the line
OF_A_SWARM = re.compile(r"\S+_(\w+\.\d{1,5}|balancer)(?:\.\w+)+@(\S+) +\| (.*)")
# Before each line of a cluster's: [pod/NAME/server] the line
OF_A_POD = re.compile(r"\[pod/(\S+)/\w+\] (.*)")
# Before each line of one that did not start.
REFUSED = "refused: "
# How each is shown.
BEFORE = {re.compile(f"{REFUSED}(.*)"): REFUSED.strip(), OF_A_SWARM: r"\1@\2", OF_A_POD: r"\1"}
WIDTH = len("keeper")
NO_GPU = re.compile(
    "CUDA driver version is insufficient|CudaDriverHelper has not|no pinned memory pool"
)
NO_NVML = "Error: Failed to initialize NVML"


@dataclass
class Entry:
    time: str
    source: str
    text: str
    # Lines without a time belong to the one before: a traceback.
    more: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = printable(self.text)
        if self.time:
            head = f"{self.time}Z {self.source:<{WIDTH}} {head}"
        return "\n".join([head, *map(printable, self.more)])


def entry(line: str, now: datetime) -> Entry | None:
    """None for a line that has no time."""
    for before, shown in BEFORE.items():
        if found := before.fullmatch(line):
            new = entry(found[found.re.groups], now)
            return new and replace(new, text=f"{found.expand(shown)} {new.text}")
    if found := OURS.fullmatch(line):
        return Entry(found[1], found[2], found[3])
    if found := AS_JSON.fullmatch(line):
        return Entry(found[1], found[2], line)
    if found := TRITON.fullmatch(line):
        level, month, day, time, rest = found.groups()
        text = f"{now.year}-{month}-{day}T{time}"
        if text > as_text(now + timedelta(days=1)):  # of last December
            text = f"{now.year - 1}{text[4:]}"
        return Entry(text, "triton", f"{level} {rest}")
    return None


def without_gpu(lines: Iterable[str]) -> Iterator[str]:
    """Without what Triton says, at each load, of a machine that has none."""
    for line in lines:
        said = OF_A_POD.sub(r"\2", OF_A_SWARM.sub(r"\3", line))
        if said != NO_NVML and not (TRITON.fullmatch(said) and NO_GPU.search(said)):
            yield line


def entries(lines: Iterable[str], now: datetime) -> Iterator[Entry]:
    """As they come."""
    last: Entry | None = None
    for line in lines:
        if new := entry(line, now):
            if last:
                yield last
            last = new
        elif last:
            last.more.append(line)
        elif line:
            yield Entry("", "", line)
    if last:
        yield last


def order_lines(
    lines: Iterable[str], now: datetime, since: float | None = None, most: int | None = None
) -> list[Entry]:
    """Those of the last `since` seconds, or the last `most`."""
    found: Iterable[Entry] = entries(lines, now)
    if since is not None:
        first = as_text(now - timedelta(seconds=since))
        found = [each for each in found if each.time >= first]
    return list(deque(sorted(found, key=attrgetter("time")), maxlen=most))


def as_text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}"
