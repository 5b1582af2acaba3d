"""Shows the server's log: Triton's, the keeper's and the door's lines in the order of their times.

make logs                    the last 200
make logs SINCE=5m           those of the last five minutes (90s, 5m, 2h, 1d)
make logs FOLLOW=1           and those that come, until Ctrl-C
make logs JSON=1             a line of JSON each, as of all commands
"""

import queue
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter

from scripts.base import console, interrupts
from scripts.base.text import fold
from scripts.server.log_order import REFUSED, Entry, order_lines, without_gpu
from scripts.settings import arguments
from scripts.stacks import flavour, state

MOST = 200
# Envoy hands its lines over half a second late: so long, new ones wait for others that are older.
HELD_S = 1.0
# In a terminal, of what goes on of a line.
INDENT = "    "


def main() -> int:
    given, earlier = arguments.load(), read_refused_log()
    known = state.load() if earlier else state.require()
    process = flavour.stack_of(known).log_process(given.follow) if known else None
    try:
        since, most = given.since, None if given.since else MOST
        for batch in read_batches(process, given.follow):
            now, found = datetime.now(UTC), []
            for mark, said in ((REFUSED, earlier), ("", batch)):
                kept = said if known and known.flavour == "gpu" else without_gpu(said)
                found += order_lines((f"{mark}{line}" for line in kept), now, since, most)
            for entry in sorted(found, key=attrgetter("time")):
                show(entry)
            since, most, earlier = None, None, []
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    finally:
        if process:
            process.kill()
            process.wait()
    return 0


def read_batches(process: subprocess.Popen[str] | None, follow: bool) -> Iterator[Iterable[str]]:
    """Without a server, what the last one said that did not start is all there is."""
    if process is None:
        return iter([()])
    return follow_lines(process) if follow else iter([lines(process)])


def show(entry: Entry) -> None:
    if console.Form.is_json:
        time = f"{entry.time}Z" if entry.time else ""
        text = "\n".join((entry.text, *entry.more))
        return console.write_json({"time": time, "source": entry.source, "text": text})
    return print(fold(str(entry), console.out.width, INDENT), flush=True)


def read_refused_log() -> list[str]:
    """The log of a server or candidate that did not start. It is kept until the next is tried."""
    try:
        return state.REFUSED.read_text(errors="replace").splitlines()
    except OSError:
        return []


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout
    for line in process.stdout:
        yield line.rstrip("\n")


def follow_lines(process: subprocess.Popen[str]) -> Iterator[Iterable[str]]:
    """What there is, and then what has come in each second."""
    arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in lines(process):
            arrived.put(line)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        batch = [arrived.get()]
        until = time.monotonic() + HELD_S
        with suppress(queue.Empty):
            while batch[-1] is not None and (left := until - time.monotonic()) > 0:
                batch.append(arrived.get(timeout=left))
        yield [line for line in batch if line is not None]
        if batch[-1] is None:
            return
