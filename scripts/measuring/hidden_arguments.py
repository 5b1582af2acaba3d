"""Executes another program with a secret in its arguments that no process list shows. Stdlib only;
a container that measures runs this file alone:

    python3 hidden_arguments.py PROGRAM -H 'admin-key:{secret}' … < secret

perf_analyzer accepts the admin key only as an argument, and everyone on a machine may read the
arguments of all processes (ps, /proc/PID/cmdline). So the program is started with the placeholder
`{secret}` and stopped by ptrace before its first instruction; then the argument's pointer is
redirected to the real text. That text is in the environment, which the kernel shows only to the
owner, and its entry is removed from the list, so that the program does not pass it on.

Overwriting the argument of a running program would expose it for a moment. A parent that traces the
program would interfere with its signals. So this very process is traced, by an orphan that detaches
before the program's first instruction.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import struct
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PLACE = "{secret}"
CARRIER = "HIDDEN_ARGUMENT_"

# From <sys/ptrace.h>, <sys/prctl.h> and <sys/wait.h>.
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE = 7, 17, 0x4206
PTRACE_O_TRACEEXEC, PTRACE_EVENT_EXEC = 0x10, 4
PTRACE_O_EXITKILL = 0x100000
PR_SET_PTRACER = 0x59616D61
WALL = 0x40000000

# In /proc/PID/stat, counted from what follows the program's name.
START_OF_STACK, END_OF_ENVIRONMENT = 25, 48
POINTER = struct.Struct("N")


class CannotHide(RuntimeError):
    """Processes may not trace each other here; the message says what to do."""

    def __init__(self, refusal: str) -> None:
        super().__init__(
            f"the key cannot be kept out of the process list (ptrace: {refusal}); allow it: sysctl "
            "kernel.yama.ptrace_scope=1 (after 3, at the next boot), and in containers a seccomp "
            "profile with ptrace, as Docker's own"
        )


def become(program: list[str], secret: str, environment: Mapping[str, str]) -> NoReturn:
    """execve with the secret in place of {secret}; after CannotHide, nothing has happened."""
    hidden = {word: word.replace(PLACE, secret) for word in program if PLACE in word}
    if hidden:
        _be_held(hidden)
    carried = {f"{CARRIER}{number}": text for number, text in enumerate(hidden.values())}
    os.execve(program[0], program, {**environment, **carried})


def _be_held(hidden: Mapping[str, str]) -> None:
    """Returns once this process is traced by one that will insert the secret."""
    here, there = socket.socketpair()
    held = os.getpid()
    between = os.fork()
    if between == 0:  # exits at once, so that init adopts the tracer, not the program
        try:
            if os.fork() == 0:
                here.close()
                _hold(held, hidden, there)
        except Exception:
            traceback.print_exc()  # contains no values
        finally:
            os._exit(0)
    there.close()
    os.waitpid(between, 0)
    refusal = ""
    with here, suppress(ConnectionError):
        holder = int(here.recv(16) or 0)
        # Yama's default is that only a parent may hold; this names another one. No matter where
        # there is no Yama.
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(holder), 0, 0, 0)
        here.sendall(b"hold")
        refusal = here.recv(64).decode()
    if refusal != "held":
        raise CannotHide(refusal or "the process that should do so has ended")


def _hold(held: int, hidden: Mapping[str, str], other: socket.socket) -> NoReturn:
    """The tracer's whole life. If it ends early, the kernel kills the traced process too: the
    program never runs with the placeholder as its key."""
    with other:
        other.sendall(str(os.getpid()).encode())
        other.recv(16)
        try:
            _ptrace(PTRACE_SEIZE, held, PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)
        except OSError as refusal:
            other.sendall(str(refusal.strerror).encode())
            os._exit(1)
        other.sendall(b"held")
    if _until_exec(held):
        _put(held, hidden)
        _ptrace(PTRACE_DETACH, held, 0)
    os._exit(0)


def _until_exec(held: int) -> bool:
    """Passes on signals that come earlier; False if one of them is fatal."""
    while True:
        _, status = os.waitpid(held, WALL)
        if not os.WIFSTOPPED(status):
            return False
        event = status >> 16
        if event == PTRACE_EVENT_EXEC:
            return True
        _ptrace(PTRACE_CONT, held, 0 if event else os.WSTOPSIG(status))


def _put(held: int, hidden: Mapping[str, str]) -> None:
    """A new program's stack begins with argc, argv, 0, envp, 0; the texts are above. Redirects the
    argument into the environment, behind the carrier's name."""
    fields = Path(f"/proc/{held}/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[START_OF_STACK]), int(fields[END_OF_ENVIRONMENT])
    memory = os.open(f"/proc/{held}/mem", os.O_RDWR)
    stack = os.pread(memory, end - start, start)

    def pointers(place: int) -> dict[int, int]:
        """The address and the target of each pointer in a list."""
        found = {}
        while (pointer := POINTER.unpack_from(stack, place)[0]) != 0:
            found[place] = pointer
            place += POINTER.size
        return found

    def text(pointer: int) -> str:
        begin = pointer - start
        return os.fsdecode(stack[begin : stack.index(0, begin)])

    def point(place: int, pointer: int) -> None:
        os.pwrite(memory, POINTER.pack(pointer), start + place)

    arguments = pointers(POINTER.size)
    variables = pointers(POINTER.size * (len(arguments) + 2))
    innocent = next(p for p in variables.values() if not text(p).startswith(CARRIER))
    for number, (shown, real) in enumerate(hidden.items()):
        name = f"{CARRIER}{number}="
        (carrier,) = (where for where, to in variables.items() if text(to) == name + real)
        for where, to in arguments.items():
            if text(to) == shown:
                point(where, variables[carrier] + len(name))
        point(carrier, innocent)  # not removed: libc finds what follows the list by its length


def _ptrace(request: int, process: int, data: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, process, None, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(program: list[str]) -> int:
    binary = shutil.which(program[0])
    if binary is None:
        print(f"error: {program[0]} is not on PATH", file=sys.stderr)
        return 127
    secret = sys.stdin.read().strip() if any(PLACE in word for word in program) else ""
    try:
        become([binary, *program[1:]], secret, os.environ)
    except CannotHide as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
