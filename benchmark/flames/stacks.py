"""perf's samples, folded: by process, library and system call, with the function at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

KERNEL = "[kernel.kallsyms]"
SYSTEM_CALL = re.compile(r"__(?:x64|arm64)_sys_(\w+)")
# Code that OpenVINO has made itself, by which it computes.
JUST_IN_TIME = re.compile(r"\[JIT\]|perf-\d+\.map$")
FRAME = re.compile(r"^\s+[0-9a-f]+ (?P<symbol>.*?)(?:\+0x[0-9a-f]+)? \((?P<file>.*)\)$")

Stack = tuple[str, ...]


def fold(script: str, names: Mapping[int, str]) -> Counter[Stack]:
    """`script` is what `perf script --fields pid,ip,sym,dso` prints; `names` of processes. The
    outermost comes first."""
    found: Counter[Stack] = Counter()
    for sample in script.split("\n\n"):
        head, *lines = sample.strip("\n").splitlines() or [""]
        if head.strip().isdigit() and (name := names.get(int(head))):
            found[(name, *_shorten(list(_frames(lines)))[:5])] += 1
    return found


def _frames(lines: list[str]) -> Iterator[tuple[str, str]]:
    """File and function, the outermost first; what perf cannot name is left out."""
    for line in reversed(lines):
        frame = FRAME.match(line)
        if frame and frame["file"] not in ("[unknown]", "inlined"):
            yield frame["file"], frame["symbol"]


def _shorten(frames: list[tuple[str, str]]) -> Stack:
    """A box for each library in turn; of the kernel the system call; and the last function."""
    boxes: list[str] = []
    for file, symbol in frames:
        call = SYSTEM_CALL.fullmatch(symbol)
        box = call[1] if call else name_library(file)
        if box and (not boxes or boxes[-1] != box) and not (box == "kernel" and boxes[-1:]):
            boxes.append(box)
    if frames and frames[-1][1] != "[unknown]" and not JUST_IN_TIME.search(frames[-1][0]):
        boxes.append(frames[-1][1])
    return tuple(boxes)


def name_library(file: str) -> str:
    if JUST_IN_TIME.search(file):
        return "computing"
    if file == KERNEL:
        return "kernel"
    name = Path(file).name
    return re.sub(r"^lib|-[0-9a-f]{8}\b|\.cpython-\w+-\w+-\w+-\w+|\.so.*$|^_+", "", name)
