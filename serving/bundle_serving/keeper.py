"""Keeps a server and its door up: starts them, watches them, and restores the smallest thing that
helps.

    python -m bundle_serving.keeper --run-dir build/run --repository build/live --http-port 8000 …

What it does not know itself it passes on to start_server.

    a process is stopped           it is woken
    a model lacks a process        it is made anew, while what is left of it serves    (watch.py)
    a pipeline does not answer     its models are made anew, or loaded                 (watch.py)
    the door has ended             it is started again
    the server has ended, or       it is started again, with all pipelines that it had
      nothing smaller helped
    that did not help either       this program ends, and whoever runs it starts all afresh
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from asyncio.subprocess import Process as Child
from pathlib import Path
from typing import NoReturn

import grpc

from bundle_serving import sockets
from bundle_serving.afresh import START_FAILED
from bundle_serving.awake import keep_awake
from bundle_serving.hands import Hands
from bundle_serving.keeper_notes import DOOR, SERVER, Notes, log
from bundle_serving.pauses import Pauses
from bundle_serving.start_server import EXIT_TIMEOUT_S, PIPELINE
from bundle_serving.triton_control import Triton
from bundle_serving.watch import Watch

GIVEN_UP = 1
QUESTION_S = 10
START_S = 300  # until the first answer
MOST_STARTS = 3  # of the server, in vain
LEAVE_S = 2  # between "not ready" and the end, for load balancers
DOOR_EXIT_S = 15


class GivenUp(Exception):
    """The exit code, and why."""


class Keeper:
    def __init__(self, options: argparse.Namespace, for_server: list[str]) -> None:
        self._options = options
        self._for_server = for_server
        self._triton = Triton(sockets.folder(options.run_dir))
        self._notes = Notes.resumed(options.run_dir)
        self._hands = Hands(options.hands_off)
        self._pauses = Pauses()
        self._server: Child | None = None
        self._door: Child | None = None
        self._up_once = False

    async def run(self) -> int:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        stopping = asyncio.create_task(stop.wait())
        keeping = asyncio.gather(self._keep_door(), self._keep_server(), self._keep_awake())
        await asyncio.wait((stopping, keeping), return_when=asyncio.FIRST_COMPLETED)
        self._notes.say(False, "the server is stopping")
        try:
            if stopping.done():
                if self._up_once:
                    await asyncio.sleep(LEAVE_S)
                return 0
            await keeping
        except GivenUp as given_up:
            code, reason = given_up.args
            log(reason)
            return int(code)
        finally:
            keeping.cancel()
            await _end(self._door, DOOR_EXIT_S)
            await _end(self._server, EXIT_TIMEOUT_S if stopping.done() else 0)
            self._remove_shared_memory()
        raise AssertionError("nothing that keeps ends by itself")

    async def _keep_door(self) -> NoReturn:
        named = ("run_dir", "address", "http_port", "grpc_port", "metrics_port", "admin_key_file")
        given = {name: getattr(self._options, name) for name in named}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        while True:
            self._door = await _started("bundle_door", *options)
            code = await self._door.wait()
            await _end(self._door, 0)  # what is left of it
            if not self._up_once:
                raise GivenUp(START_FAILED, f"the door does not start: it ended with {code}")
            await self._pauses.before(DOOR)
            self._notes.restored(DOOR, f"the door had ended with {code}: started it again")

    async def _keep_server(self) -> NoReturn:
        why, in_vain = "", 0
        while True:
            async with self._hands.on():
                await self._pauses.before(SERVER)
                answers = await self._start_server()
                if answers and why:
                    await self._load_extra_pipelines()
                    self._notes.restored(SERVER, f"{why}: started the server again")
            in_vain = 0 if answers else in_vain + 1
            assert self._server
            if answers:
                watch = Watch(self._server, self._triton, self._notes, self._hands, self._pauses)
                why = await watch.until_it_must_be_started_again()
            elif self._server.returncode is not None:
                why = f"the server ended with {self._server.returncode} while it started"
            else:
                why = f"the server answered nothing within {START_S} s of its start"
            self._notes.say(False, why)
            log(why)
            await _end(self._server, 0)
            if not self._up_once:
                raise GivenUp(START_FAILED, "the server does not start")
            if in_vain == MOST_STARTS:
                raise GivenUp(GIVEN_UP, f"{in_vain} starts of the server were in vain")

    async def _start_server(self) -> bool:
        """Whether it answers."""
        self._remove_shared_memory()
        self._server = await _started(
            "bundle_serving.start_server",
            *self._for_server,
            f"--run-dir={self._options.run_dir}",
            f"--shm-prefix={self._options.shm_prefix}",
        )
        deadline = time.monotonic() + START_S
        while self._server.returncode is None and time.monotonic() < deadline:
            if await self._triton.ask(PIPELINE, QUESTION_S) is None:
                self._up_once = True
                self._notes.say(True)
                return True
            await asyncio.sleep(0.1)
        return False

    async def _load_extra_pipelines(self) -> None:
        """A fresh server has the first one alone."""
        for name in self._notes.extra_pipelines:
            try:
                await self._triton.load(name)
            except grpc.aio.AioRpcError as fault:
                log(f"{name} is not loaded again: {fault.details()}")

    async def _keep_awake(self) -> NoReturn:
        def both() -> list[int]:
            return [each.pid for each in (self._server, self._door) if each]

        await keep_awake(both, self._options.shm_prefix, self._notes)

    def _remove_shared_memory(self) -> None:
        """Of a server that was killed it stays."""
        for region in Path("/dev/shm").glob(f"{self._options.shm_prefix}*"):
            region.unlink(missing_ok=True)


async def _started(module: str, *options: str) -> Child:
    """In a group of its own, which is ended with it."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *options, start_new_session=True
    )


async def _end(child: Child | None, grace: float) -> None:
    """With all that it started, once the time for what is in flight is over."""
    if child is None:
        return
    if grace and child.returncode is None:
        child.terminate()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(child.wait(), grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", required=True, type=Path, help="writable, may execute")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--http-port", default="8000")
    parser.add_argument("--grpc-port", default="8001")
    parser.add_argument("--metrics-port", default="8002")
    parser.add_argument("--admin-key-file", type=Path, required=True)
    parser.add_argument("--shm-prefix", default="triton_bundle_")
    parser.add_argument("--hands-off", type=Path, help="nothing is restored while it is locked")
    options, for_server = parser.parse_known_args(argv)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.umask(0o077)
    options.run_dir.mkdir(parents=True, exist_ok=True)
    try:
        return asyncio.run(Keeper(options, for_server).run())
    except sockets.NotPrivate as fault:
        print(f"error: {fault}", file=sys.stderr)
        return START_FAILED


if __name__ == "__main__":
    sys.exit(main())
