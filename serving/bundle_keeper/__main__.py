"""Keeps a server and its door running: starts and watches them, and restores the smallest part that
helps.

    python -m bundle_keeper --run-dir build/run --repository build/live \
        --admin-key-file build/key/admin.key

Unknown options are passed to start_server.

    a process is stopped           it is resumed
    a model lacks a process        it is reloaded while its other processes serve      (watch.py)
    a pipeline hangs in its load   the server is restarted without it
    a pipeline does not answer     its models are reloaded, or loaded                  (watch.py)
    a process of the door has      it is restarted; the first one with Envoy, also if the door lets
      exited, or hangs               nobody in
    the server has exited, or      it is restarted, with all pipelines that it had
      nothing smaller helped
    that did not help either, or   this program exits, and its guard (afresh.py) restarts all, or
      the GPU cannot be reached    exits too, for Docker or the kubelet to restart the container
    its guard is gone              it goes on as the guard, with a new keeper
"""

import argparse
import asyncio
import os
import resource
import signal
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import grpc

from bundle_door.settings import PROCESSES, count_processes
from bundle_keeper import afresh
from bundle_keeper.afresh import GIVEN_UP, START_FAILED
from bundle_keeper.asking import BUSY, Front, Triton
from bundle_keeper.children import Child, keep_awake
from bundle_keeper.hands import Hands, Pauses
from bundle_keeper.waiting_room import WaitingRoom
from bundle_keeper.watch import Watch
from bundle_serving import own_requests
from bundle_serving.process import gpu, guard, keeper_notes, main_pipeline, sockets
from bundle_serving.process.keeper_notes import DOOR, SERVER, Notes, log
from bundle_serving.process.main_pipeline import find_main
from bundle_serving.process.processes import Process, family, remove_leftovers
from bundle_serving.process.start_server import DOOR_EXIT_S, EXIT_TIMEOUT_S
from bundle_serving.protocol import local_http

START_S = 300  # until everything is loaded, and the door listens; or START_TIMEOUT, if it is longer
MOST_STARTS = 3  # failed starts of the server
MOST_LOADS = 3  # failed loads of a pipeline
ASK_DOOR_S, MOST_SILENT = 5, 3
LOOK_FOR_DOOR_S = 0.25  # until it listens
ENVOY = "envoy"  # the door's child
# The door answers this by itself; Triton may be waiting for its repository.
READY = "/v2/health/ready"
OF_THE_DOOR = {sockets.ENVOY_ADMIN: "/ready", sockets.HTTP: READY}
LEAVES_S = 3  # a door that lets nobody in may still be answering somebody


class GivenUp(Exception):
    """The exit code, and why."""


class Keeper:
    def __init__(self, options: argparse.Namespace, for_server: list[str]) -> None:
        self._options = options
        self._for_server = for_server
        own_id = own_requests.id_of(guard.read(options.admin_key_file))
        os.environ[own_requests.VARIABLE] = own_id  # for the steps
        folder = sockets.folder(options.run_dir)
        self._triton = Triton(folder, own_id)
        self._notes = Notes.resume(options.run_dir)
        self._hands = Hands(options.hands_off)
        self._pauses = Pauses()
        self._front = Front(options)
        ports = (options.http_port, options.grpc_port, options.metrics_port)
        # A relay keeps the ports of containers.
        kept = [] if os.environ.get("RELAY_FOLDER") else [*map(int, ports)]
        self._waiting_room = WaitingRoom(options.address, kept, folder)
        self._guard, self._guarded_by = afresh.guard()
        # Pipelines that hung when they were loaded.
        self._left_out: set[str] = set()
        self._server: Child | None = None
        self._door: Child | None = None
        # Its further processes, by number.
        self._workers: dict[int, Child] = {}
        self._loaded_all = asyncio.Event()
        self._door_listened = False
        # Once it is done: why nobody is let in by it.
        self._door_is_shut: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        stopping = asyncio.create_task(stop.wait())
        workers = range(1, count_processes(os.environ.get(PROCESSES, "")))
        keeping = asyncio.gather(
            self._keep_door(),
            self._keep_server(),
            keep_awake(self._list_processes, self._options.shm_prefix, self._notes),
            *map(self._keep_worker, workers),
        )
        alone = asyncio.create_task(self._guard_ended())
        await asyncio.wait((stopping, keeping, alone), return_when=asyncio.FIRST_COMPLETED)
        if alone.done() and not stopping.done():
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self._take_its_place()
        alone.cancel()
        code = 0
        if not stopping.done():
            try:
                await keeping
            except GivenUp as given_up:
                code, reason = given_up.args
                log(reason)
        self._notes.say(False, "the server is stopping")
        self._waiting_room.close()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        for_nobody = ((worker, 0) for worker in self._workers.values())
        ends = ((self._door, DOOR_EXIT_S), *for_nobody, (self._server, EXIT_TIMEOUT_S))
        for child, grace in ends:
            if child:
                await child.end(0 if code else grace)
        remove_leftovers(self._options.shm_prefix)
        return code

    async def _guard_ended(self) -> None:
        if not self._guard:
            await asyncio.Event().wait()
        with suppress(ProcessLookupError):
            if os.getppid() == self._guard:
                await Child(self._guard).wait()

    async def _take_its_place(self) -> NoReturn:
        """This process goes on as the guard. The next keeper finds server and door among its
        children, and those that an earlier keeper started, which are nobody's now, by their
        numbers."""
        log("its guard is gone: it begins anew, guarded")
        children = (self._door, *self._workers.values(), self._server)
        afresh.note_orphans([each.pid for each in children if each])
        os.execv(self._guarded_by[0], self._guarded_by)

    async def _keep_door(self) -> NoReturn:
        self._waiting_room.resume()
        self._door = Child.find_running(lambda process: self._is_door(process, 0))
        was_up = self._door is not None
        if self._options.door_last and not was_up:
            await self._loaded_all.wait()
            if self._notes.are_new and not Path(f"/proc/{self._options.door_last}").exists():
                raise GivenUp(START_FAILED, "the command is gone that would end the other server")
        while True:
            self._door_listened = self._door is not None
            self._door = self._door or self._start_door(0)
            self._door_is_shut = asyncio.get_running_loop().create_future()
            why = await self._door_ends(self._door)
            await self._door.end(LEAVES_S if self._door_is_shut.done() else 0)
            if not (was_up or self._notes.times_ready):
                raise GivenUp(START_FAILED, "the door does not start")
            await self._waiting_room.hold()
            await self._pauses.wait_before(DOOR)
            self._door = None
            self._notes.note_restored(DOOR, f"{why}: restarted it")

    async def _keep_worker(self, number: int) -> NoReturn:
        """A further process of the door, while the others serve."""
        worker = Child.find_running(lambda process: self._is_door(process, number))
        while True:
            worker = self._workers[number] = worker or self._start_door(number)
            why = await self._worker_ends(worker, number)
            await worker.end(0)
            await self._pauses.wait_before(f"{DOOR} {number}")
            worker = None
            self._notes.note_restored(DOOR, f"process {number} of the door {why}: restarted it")

    async def _worker_ends(self, worker: Child, number: int) -> str:
        http, steps = (sockets.of_process(n, number) for n in (sockets.HTTP, sockets.STEPS))
        silent, listened = 0, False
        while silent < (MOST_SILENT if listened else START_S // LOOK_FOR_DOOR_S):
            with suppress(TimeoutError):
                await asyncio.wait_for(worker.wait(), ASK_DOOR_S if listened else LOOK_FOR_DOOR_S)
                return "had exited"
            lives = await self._has_answers({http: READY}, steps)
            silent, listened = (0, True) if lives else (silent + 1, listened)
        return "hung"

    async def _door_ends(self, door: Child) -> str:
        """Waits until it exits or hangs, that is, gives no sign of life several times."""
        silent, ended = 0, asyncio.ensure_future(door.wait())
        waiting = asyncio.create_task(self._wait_for_envoys_end(door))
        try:
            # A busy machine may take long to start it.
            while silent < (MOST_SILENT if self._door_listened else START_S // LOOK_FOR_DOOR_S):
                ends = (ended, self._door_is_shut)
                look_s = ASK_DOOR_S if self._door_listened else LOOK_FOR_DOOR_S
                await asyncio.wait(ends, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return "the door had exited"
                if self._door_is_shut.done():
                    return f"the door let nobody in ({self._door_is_shut.result()})"
                if await self._has_answers(OF_THE_DOOR, sockets.STREAMS, sockets.STEPS):
                    silent, self._door_listened = 0, True
                    await self._waiting_room.look()
                else:
                    silent += 1
        finally:
            ended.cancel()
            waiting.cancel()
        return "the door hung"

    async def _wait_for_envoys_end(self, door: Child) -> None:
        """The door ends a little later, in which all who come would be refused."""
        while not self._door_listened:
            await asyncio.sleep(LOOK_FOR_DOOR_S)
        for each in family(door.pid):
            if each.name == ENVOY:
                self._waiting_room.keep(each.pid)
                with suppress(ProcessLookupError):
                    await Child(each.pid).wait()
                await self._waiting_room.hold()

    def _reopen(self, why: str) -> None:
        """Not a door that is still starting."""
        if self._door_listened and not self._door_is_shut.done():
            self._door_is_shut.set_result(why)

    async def _has_answers(self, asked: Mapping[str, str], *others: str) -> bool:
        """Whether the door answers at these sockets, to these paths, and has the others."""
        folder = sockets.folder(self._options.run_dir)
        try:
            for name, path in asked.items():
                await local_http.ask(folder / name, "GET", path)
        except OSError:
            return False
        return all((folder / name).is_socket() for name in others)

    async def _keep_server(self) -> NoReturn:
        why, in_vain = "", 0
        self._server = Child.find_running(self._is_server)
        was_up = self._server is not None
        has_gpu = asyncio.create_task(asyncio.to_thread(gpu.is_there))
        while True:
            before = self._notes.times_ready
            if self._server is None:
                async with self._hands.hold_for_keeper():
                    await self._pauses.wait_before(SERVER)
                    self._notes.announce(self._list_extra_pipelines())
                    self._server = self._start_server()
                    loaded = await self._loads(self._server)
                was_up = was_up or loaded  # its first answer may not have been seen yet
                if loaded and why:
                    self._notes.note_restored(SERVER, f"{why}: restarted it")
            if was_up:
                self._loaded_all.set()
            why = await self._watch_until_restart_needed(self._server)
            in_vain = 0 if self._notes.times_ready > before else in_vain + 1
            self._notes.say(False, why)
            log(why)
            # On a busy machine, Triton crashes now and then as it loads (docs/limits.md).
            is_worth_another = in_vain == 1 and self._server.has_crashed
            await self._server.end(0)
            self._server = None
            if await has_gpu and (lost := await asyncio.to_thread(gpu.why_lost)):
                raise GivenUp(GIVEN_UP, lost)
            if not (was_up or self._notes.times_ready or is_worth_another):
                raise GivenUp(START_FAILED, f"the server does not start: {why}")
            if in_vain == MOST_STARTS:
                raise GivenUp(GIVEN_UP, f"{in_vain} starts of the server failed")

    async def _loads(self, server: Child) -> bool:
        """Waits until it has loaded what it is to serve from its start, or cannot. Nobody watches
        it meanwhile, for whom a load from S3 may look like a server that hangs."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.start_s):
                while server.runs:
                    with suppress(grpc.aio.AioRpcError):
                        if self._options.load_model in await self._triton.ready():
                            await self._triton.learn(self._options.load_model)
                            await self._load_extra_pipelines(self._list_asked_pipelines())
                            return True
                    await asyncio.sleep(0.1)
        return False

    async def _watch_until_restart_needed(self, server: Child) -> str:
        """Returns, with the reason, once it must be restarted."""
        first = self._options.load_model
        watch = Watch(
            *(first, server, self._triton, self._notes, self._hands, self._pauses, self._front),
            sockets.folder(self._options.run_dir),
            self._reopen,
        )
        self._notes.announce(self._list_extra_pipelines())
        loading = asyncio.create_task(self._load_extra_pipelines(self._notes.coming))
        watching = asyncio.create_task(watch.watch_until_restart_needed())
        try:
            await asyncio.wait((loading, watching), return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and (late := await loading):
                self._left_out.add(late)
                return f"{late} did not load within {self._options.load_s:g} s and is left out"
            return await watching
        finally:
            for task in (loading, watching):
                task.cancel()
            await asyncio.gather(loading, watching, return_exceptions=True)

    def _list_extra_pipelines(self) -> list[str]:
        """Make's notes, of the server that keeps its hands off while make works, outlast the
        container; its own have what make does not know."""
        beside = self._options.admin_key_file.parent
        noted = keeper_notes.read_loaded_beside(beside) if self._options.hands_off else None
        names = self._list_asked_pipelines() + (noted or []) + self._notes.extra_pipelines
        return [name for name in dict.fromkeys(names) if name not in self._left_out]

    def _list_asked_pipelines(self) -> list[str]:
        asked = self._options.extra_pipelines.split()
        return [name for name in asked if name not in self._left_out]

    async def _load_extra_pipelines(self, names: list[str]) -> str | None:
        """A fresh server has only the main one. Returns the one that does not load in time: Triton
        loads nothing else meanwhile, and cannot be told to give it up."""
        for name in names:
            try:
                async with asyncio.timeout(self._options.load_s):
                    await self._load(name)
            except TimeoutError:
                return name
            self._notes.announce([other for other in self._notes.coming if other != name])
        return None

    async def _load(self, name: str) -> None:
        """Again if the server is busy; and if it failed, for one of its processes may have been
        killed meanwhile."""
        failed = 0
        while failed < MOST_LOADS:
            try:
                if name not in await self._triton.ready():
                    await self._triton.load(name)
                return
            except grpc.aio.AioRpcError as fault:
                log(f"could not load {name}: {fault.details()}")
                failed += fault.code() not in BUSY
            await asyncio.sleep(1)

    def _is_door(self, process: Process, number: int) -> bool:
        marks = {"bundle_door", f"--run-dir={self._options.run_dir}"}
        first = "--process=0"  # also the one that an earlier release started
        mark = next((each for each in process.arguments if each.startswith("--process=")), first)
        return marks <= {*process.arguments} and mark == f"--process={number}"

    def _start_door(self, number: int) -> Child:
        ports = ("http_port", "grpc_port", "metrics_port")
        named = ("run_dir", "repository", "address", *ports, "admin_key_file")
        given = {name: getattr(self._options, name) for name in named} | {"process": number}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        return Child.start("bundle_door", *options)

    def _is_server(self, process: Process) -> bool:
        mark = f"shm-region-prefix-name={self._options.shm_prefix}"
        starting = {
            "bundle_serving.process.start_server",
            f"--shm-prefix={self._options.shm_prefix}",
        }
        return starting <= {*process.arguments} or any(
            argument.endswith(mark) for argument in process.arguments
        )

    def _start_server(self) -> Child:
        remove_leftovers(self._options.shm_prefix)
        return Child.start(
            "bundle_serving.process.start_server",
            *([f"--repository={repository}"] if (repository := self._options.repository) else []),
            *self._for_server,
            f"--load-model={self._options.load_model}",
            f"--run-dir={self._options.run_dir}",
            f"--shm-prefix={self._options.shm_prefix}",
        )

    def _list_processes(self) -> list[int]:
        there = (self._server, self._door, *self._workers.values())
        return [*(each.pid for each in there if each), *self._waiting_room.leading]


async def _keep(options: argparse.Namespace, for_server: list[str]) -> int:
    """Created here, because gRPC uses the running loop."""
    return await Keeper(options, for_server).run()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run-dir", required=True, type=Path, help="writable, not mounted noexec")
    parser.add_argument("--repository", default=os.environ.get("REPOSITORY", ""))
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--http-port", default="8000")
    parser.add_argument("--grpc-port", default="8001")
    parser.add_argument("--metrics-port", default="8002")
    parser.add_argument("--admin-key-file", type=Path, required=True)
    parser.add_argument("--load-model", metavar="NAME", help="the main pipeline")
    extra = os.environ.get("EXTRA_PIPELINES", "")
    parser.add_argument("--extra-pipelines", metavar="NAMES", default=extra, help="from its start")
    start_s = max(START_S, float(os.environ.get("START_TIMEOUT") or 0))
    parser.set_defaults(start_s=start_s)
    patience = "for each of them to load, until it is left out"
    parser.add_argument("--load-s", type=float, default=start_s, metavar="SECONDS", help=patience)
    parser.add_argument("--shm-prefix", default="triton_bundle_")
    later = "only once all is loaded, while this command runs: another server has the ports"
    # A guard of an earlier release names none.
    parser.add_argument("--door-last", nargs="?", const=1, type=int, metavar="PROCESS", help=later)
    parser.add_argument("--hands-off", type=Path, help="of make: while locked, nothing is restored")
    options, for_server = parser.parse_known_args(argv)
    options.load_model = options.load_model or find_main(options.repository)
    os.environ[main_pipeline.VARIABLE] = options.load_model  # for the door
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options.run_dir.mkdir(parents=True, exist_ok=True)
    # A group that shares the checkout may read the keeper's notes; pictures are the server's.
    shared = options.run_dir.stat().st_mode & stat.S_ISGID
    os.umask(0o027 if shared else 0o077)
    try:
        return asyncio.run(_keep(options, for_server))
    except (sockets.NotPrivate, guard.NoKey) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return START_FAILED


if __name__ == "__main__":
    sys.exit(main())
