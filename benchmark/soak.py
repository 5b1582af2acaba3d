"""Whether the server's memory grows: what it holds while clients ask at full speed, up to the
first request that fails.

    .venv/bin/python -m benchmark.soak [--minutes 10] [--images photos]
    .venv/bin/python -m benchmark.soak --harm [--minutes 30]

With --harm hostile requests come among the good ones, and now and then a process is killed,
one kind after the other. A good request that is refused is asked again for half a minute; one that
is not answered then is lost.

Before it: make up
"""

import argparse
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmark.load import Question, infer_path, measure, over_http
from benchmark.torture import pictures
from benchmark.torture.bystanders import Bystanders
from benchmark.torture.requests import mutants, status_of
from benchmark.torture.subject import PARTS, Subject, harm
from scripts.base import console
from scripts.base.errors import UserError, run_guarded
from scripts.measuring import photos
from scripts.recipes import pipelines
from scripts.rollout import rollout
from scripts.rollout.switch import Running
from scripts.stacks.containers import DockerStack

CLIENTS = 4
BETWEEN_S = 30
PATIENCE_S = 30
SEED = 30


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--images", default="", help="empty: drawn ones of 2 MB and of 60 kB")
    parser.add_argument("--harm", action="store_true", help="hostile requests and kills among them")
    parser.add_argument("--every", type=float, default=120, help="seconds between two kills")
    options = parser.parse_args(argv)
    up = rollout.find_running_server(pipelines.main())
    subject = find_subject(up)
    if options.harm:
        return harm_processes(subject, 60 * options.minutes, options.every)
    sent = photos.read_or_draw(options.images)
    rows = [row for each in sent for row in each.rows]
    address, path = str(up.server.http), infer_path(up.version.pipeline.ensemble)
    question = Question(address, over_http(address, path), rows)
    began, answered = time.monotonic(), 0
    while (passed := time.monotonic() - began) < 60 * options.minutes:
        tell(subject, passed, f"{answered:,} answered")
        answered += measure(question, CLIENTS, BETWEEN_S).answered
    tell(subject, passed, f"{answered:,} answered")
    return 0


def find_subject(up: Running) -> Subject:
    """Its processes, which are seen from here in a container too."""
    container = up.stack.compose.find("server") if isinstance(up.stack, DockerStack) else None
    root = container.attrs["State"]["Pid"] if container else up.server.pid
    if not root or (container and os.getuid() != 0):
        raise UserError("the server's processes cannot be seen from here", "run this as root")
    return Subject(root, str(up.server.http), str(up.server.grpc), up.server.main)


def harm_processes(subject: Subject, seconds: float, kill_every: float) -> int:
    # The server, the steps of pipelines, and the rest.
    kinds = sorted(subject.running(), key=lambda kind: (kind != PARTS[0], kind in PARTS, kind))
    victims = itertools.cycle(kinds)
    began = killed = time.monotonic()
    with hostile(subject), Bystanders(subject, patience=PATIENCE_S) as good:
        while (passed := time.monotonic() - began) < seconds:
            tell(
                subject, passed, f"{len(good.waits):,} good ones asked, {good.count_failed()} lost"
            )
            time.sleep(min(BETWEEN_S, kill_every, seconds - passed))
            if time.monotonic() > killed + kill_every:
                victim = next(victims)
                if found := subject.running().get(victim):  # else it is not back yet
                    killed = time.monotonic()
                    harm(found[0], signal.SIGKILL)
                    console.note(f"a process was killed: {victim}")
    tell(subject, passed, f"{len(good.waits):,} good ones asked, {good.count_failed()} lost")
    if good.count_failed():
        raise UserError(f"{good.count_failed()} good requests were lost", "see make logs")
    return 0


@contextmanager
def hostile(subject: Subject) -> Iterator[None]:
    """Requests and pictures of ill will, as long as the block lasts."""
    done = threading.Event()
    seeds, (_, port) = subject.target().seeds(), subject.place

    def ask_on() -> None:
        for seed in itertools.count(SEED):
            for request, picture in zip(
                mutants(seeds, 500, seed), pictures.hostile(500, seed), strict=False
            ):
                if done.wait(0.1):
                    return
                with suppress(OSError):  # the door may be gone for a moment
                    status_of(request, port)
                subject.ask_picture(picture)

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def tell(subject: Subject, seconds: float, what: str) -> None:
    console.note(f"{seconds:4.0f} s: {subject.memory() / 2**20:.0f} MiB, {what}")


if __name__ == "__main__":
    sys.exit(run_guarded(main))
