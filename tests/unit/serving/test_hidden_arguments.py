"""A secret in a program's arguments, on the real kernel."""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.project import wait_until

SECRET = "open-sesame-open-sesame"
LAUNCHER = [sys.executable, "-m", "scripts.measuring.hidden_arguments"]
# Tells what it was given, and stays.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
report = {
    "pid": os.getpid(),
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "tracer": Path("/proc/self/status").read_text().split("TracerPid:")[1].split()[0],
}
print(json.dumps(report), flush=True)
time.sleep(60)
"""
# No process of this one's may call ptrace any more.
WITHOUT_PTRACE = """
import ctypes, struct, sys
from scripts.measuring import hidden_arguments
instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, program, 0, 0) == 0  # this filter of system calls
sys.exit(hidden_arguments.main(["echo", "{{secret}}"]))
"""


def started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*LAUNCHER, sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    process.stdin.write(f"{SECRET}\n")
    process.stdin.close()
    return process


def test_the_program_has_it_and_nobody_sees_it() -> None:
    with started("-H", "key:{secret}", "other={secret}", "key:{secret}", "plain") as process:
        shown = Path(f"/proc/{process.pid}/cmdline")
        assert process.stdout
        while not select.select([process.stdout], [], [], 0)[0]:
            assert SECRET not in shown.read_text()
        report = json.loads(process.stdout.readline())
        assert "key:{secret}" in shown.read_text() and SECRET not in shown.read_text()
        assert report["arguments"] == [
            *("-H", f"key:{SECRET}", f"other={SECRET}", f"key:{SECRET}", "plain")
        ]
        assert SECRET not in str(report["environment"])  # its children inherit nothing
        assert {name: report["environment"][name] for name in ("PATH", "HOME")} == {
            name: os.environ[name] for name in ("PATH", "HOME")
        }
        assert Path(f"/proc/{process.pid}/environ").stat().st_mode & 0o077 == 0
        process.kill()


def test_the_process_is_the_program() -> None:
    """Of one number from the start, with nothing that holds it or hangs on it, and it hears."""
    with started("{secret}") as process:
        assert process.stdout
        report = json.loads(process.stdout.readline())
        assert report["pid"] == process.pid and report["tracer"] == "0"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: not children.read_text(), "the helpers to be gone")
        process.terminate()
        assert process.wait(5) == -signal.SIGTERM


def test_where_ptrace_is_forbidden_it_does_not_start() -> None:
    number = {"x86_64": 101, "aarch64": 117}[platform.machine()]
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT_PTRACE.format(number=number)],
        input=SECRET,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: the key cannot be kept out of the process list")
    assert "ptrace_scope" in line and "seccomp" in line


def test_a_program_that_is_not_there_is_one_line() -> None:
    refused = subprocess.run(
        [*LAUNCHER, "no-such-program", "{secret}"], input=SECRET, capture_output=True, text=True
    )
    assert refused.returncode == 127
    assert refused.stderr == "error: no-such-program is not on PATH\n"
