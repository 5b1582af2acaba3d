"""Prints what a video shows, as it goes."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from .annotated import writing
from .answers import Label
from .client import Client
from .errors import ClientError, ServerUnreachable
from .frames import Watched
from .show import percent, printable, title
from .sources import Source
from .video import SHORT_SIDE, BrokenOff, Frame, Frames, hide_password

WATCHED, FAILED, UNREACHABLE, INTERRUPTED = 0, 1, 3, 130
# To the beginning of the line, which is then empty.
AFRESH = "\r\033[K"

Show = Callable[[Frame, Watched], None]


def watch(
    client: Client,
    source: str,
    model: str,
    top: int,
    *,
    live: bool = False,
    as_json: bool = False,
    out: Path | None = None,
) -> int:
    """Returns the exit code."""
    show: Show = each_as_json if as_json else Changes()
    if sys.stdout.isatty() and not as_json:
        show = OneLine()
    code, ended = WATCHED, "\n" if isinstance(show, OneLine) else ""
    try:
        with writing(out, source) as write, Frames(source, live) as frames:
            began, broken_off = time.monotonic(), None
            try:
                for frame, watched in together(client, frames, model, top):
                    show(frame, watched)
                    write(frame, describe_frame(watched))
            except KeyboardInterrupt:
                code = INTERRUPTED
            except BrokenOff as fault:
                broken_off = fault
            print(ended + summary(frames, time.monotonic() - began), file=sys.stderr)
            ended = ""
        if broken_off:  # now that what was seen is written
            raise broken_off
    except ClientError as fault:
        fault.source = hide_password(source)
        code = UNREACHABLE if isinstance(fault, ServerUnreachable) else FAILED
        print(ended + printable(f"error: {fault}"), file=sys.stderr)
    return code


def together(
    client: Client, frames: Frames, model: str, top: int
) -> Iterator[tuple[Frame, Watched]]:
    asked: list[Frame] = []

    def send_frames() -> Iterator[Source]:
        for frame in frames:
            asked.append(frame)
            yield frame.pixels(SHORT_SIDE)

    for watched in client.watch(send_frames(), top, model):
        yield asked.pop(), watched


def each_as_json(frame: Frame, watched: Watched) -> None:
    labels = [asdict(each) for each in watched.labels]
    about = {"frame": frame.number, "seconds": round(frame.seconds, 3), "labels": labels}
    about |= {"smoothed": watched.frames, "ms": round(watched.ms, 1)}
    print(json.dumps(about), flush=True)


class OneLine:
    """On a terminal: the labels of now, in the place of those before."""

    def __call__(self, frame: Frame, watched: Watched) -> None:
        room = shutil.get_terminal_size().columns - 1
        line = f"{clock(frame)}  {describe(watched.labels[0])}"[:room]
        for label in watched.labels[1:]:  # as many as there is room for, each whole
            if len(longer := f"{line}, {describe(label)}") > room:
                break
            line = longer
        print(AFRESH + line, end="", flush=True)


class Changes:
    """Elsewhere: a line whenever the likeliest label is another one."""

    def __init__(self) -> None:
        self._label: Label | None = None

    def __call__(self, frame: Frame, watched: Watched) -> None:
        best = watched.labels[0]
        if self._label is None or best.index != self._label.index:
            print(f"{clock(frame)}  {describe_frame(watched)}", flush=True)
        self._label = best


def describe_frame(watched: Watched) -> str:
    return describe(watched.labels[0])


def describe(label: Label) -> str:
    return f"{title(label)} {percent(label).strip()}"


def clock(frame: Frame) -> str:
    minutes, seconds = divmod(frame.seconds, 60)
    return f"{minutes:2.0f}:{seconds:04.1f}"


def summary(frames: Frames, seconds: float) -> str:
    count = frames.seen - frames.dropped
    rate = count / seconds if seconds else 0
    return f"{frames.seen} frames seen, {frames.dropped} dropped, {rate:.1f} a second answered"
