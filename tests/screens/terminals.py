"""What commands write to a terminal of so many columns."""

import os
import pty
import re
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

# Colours, and what moves a spinner's line.
CODES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


def typed(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int
) -> str:
    """All that it writes, with the codes that only a terminal sees."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (50, columns))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "TERM": "xterm-256color"},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    written = b""
    try:
        while piece := os.read(ours, 1 << 16):
            written += piece
    except OSError:  # the last process that had it has ended
        pass
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


def what_stays(written: str) -> list[str]:
    """Its rows in the end, without the spinners that were drawn over."""
    rows, row = [""], 0
    for piece in re.split(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)", written):
        if piece == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif up := re.fullmatch(r"\x1b\[(\d+)A", piece):
            row -= int(up[1])
        elif piece == "\x1b[2K":
            rows[row] = ""
        elif piece != "\r" and not piece.startswith("\x1b[?"):
            rows[row] += piece
    return rows
