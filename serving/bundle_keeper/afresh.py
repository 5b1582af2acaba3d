"""Restarts a program whenever it ends, and resumes it if it is stopped (SIGSTOP).

    python -m bundle_keeper.afresh [--go-on] COMMAND …

Docker restarts programs (`restart: unless-stopped`), but resumes none; on the bare host nobody does
either. Children of a killed program become ours, where its successor finds them. A program that
never came up (START_FAILED) is not restarted, nor one whose files are gone; one that gave up
(GIVEN_UP) only with --go-on, for hosts where nothing else restarts it.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from bundle_serving.process.processes import Process, began, children_of, look_at
from bundle_serving.process.server_log import log

MODULE = "bundle_keeper.afresh"
START_FAILED, GIVEN_UP = 3, 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30
LONG_S = 60  # a program that ran this long did not fail to start
GUARD, ORPHANS = "BUNDLE_GUARD", "BUNDLE_ORPHANS"  # variables
PR_SET_CHILD_SUBREAPER = 36  # from <sys/prctl.h>


def guard() -> tuple[int, list[str]]:
    """Who guards this process, which may have ended already, and its command; 0 if nobody does."""
    number, command = json.loads(os.environ.get(GUARD, "[0, []]"))
    return number, command


def note_orphans(pids: Sequence[int]) -> None:
    """For the program that goes on: processes that may not be its children."""
    noted = []
    for pid in pids:
        with suppress(OSError):  # ended meanwhile
            noted.append([pid, began(pid)])
    os.environ[ORPHANS] = json.dumps(noted)


def orphans() -> list[Process]:
    """Which an earlier program has noted, as far as they run."""
    found = []
    for pid, then in json.loads(os.environ.get(ORPHANS, "[]")):
        with suppress(OSError):
            if began(pid) == then and (process := look_at(pid)):
                found.append(process)
    return found


def main(argv: list[str]) -> int:
    go_on = argv[:1] == ["--go-on"]
    command = argv[1:] if go_on else argv
    words = [sys.executable, "-m", MODULE, *argv]
    os.environ[GUARD] = json.dumps([os.getpid(), words])
    # Orphans of the program become our children, and ours to end.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, lambda *_: signal.raise_signal(signal.SIGTERM))
    signal.signal(signal.SIGTERM, _stop)
    pause, first = FIRST_PAUSE_S, True
    while True:
        began = time.monotonic()
        code = _one_life(command)
        if code == 0 or (code == START_FAILED and first) or (code == GIVEN_UP and not go_on):
            return code
        first = False
        pause = FIRST_PAUSE_S if time.monotonic() > began + LONG_S else pause
        log("keeper", f"exited with {code}; restarting in {pause:g} s")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _one_life(command: list[str]) -> int:
    """The exit code; negative after a signal, and 0 after SIGTERM to us."""
    try:
        program = os.posix_spawnp(command[0], command, os.environ)
    except FileNotFoundError:  # what it left running would hold the ports, where nobody finds it
        log("keeper", f"{command[0]} is gone, moved or removed: the server ends")
        _end_all()
        return 0

    def stop(*_: FrameType | int | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(program, signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    signal.signal(signal.SIGTERM, stop)
    code = _wait_for_end(program)
    is_told_to_stop = signal.signal(signal.SIGTERM, _stop) == signal.SIG_IGN
    if is_told_to_stop or code in (0, START_FAILED, GIVEN_UP):
        _end_all()
    return 0 if is_told_to_stop else code


def _stop(*_: FrameType | int | None) -> NoReturn:
    _end_all()
    sys.exit(0)


def _wait_for_end(program: int) -> int:
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if pid == program and not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGCONT)


def _end_all() -> None:
    for orphan in orphans():
        with suppress(ProcessLookupError):
            os.killpg(orphan.pid, signal.SIGKILL)
    while left := list(children_of(os.getpid())):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
