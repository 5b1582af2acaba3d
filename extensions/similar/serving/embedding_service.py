"""Serves the callable of embeddings.py with PyTriton until it fails or is told to stop.

    python -m bundle_serving.embedding_service --made build/embeddings --run-dir build/run/service

It exits as soon as one of its processes does, or when its own test request, sent every few seconds,
gets no answer. Its supervisor then restarts it.
"""

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NoReturn

# The store for large tensors would start another process inside Triton's interpreter. Without it,
# tensors go through a socket.
os.environ["PYTRITON_NO_TENSORSTORE"] = "1"

import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.models import model
from pytriton.triton import TritonBase, TritonLifecyclePolicy

from bundle_serving.address import Address
from bundle_serving.health import IMAGE, own, reason_not_to_trust
from bundle_serving.pictures import Transform
from bundle_serving.process.processes import children_of, remove_leftovers
from bundle_serving.process.start_server import libpython_folder

from .embeddings import Embedder, Network
from .handshake import IN_AN_INSTANCE, patient

MODEL = "embedding"
MODEL_STORE = Path("work") / "model-store"
INSTANCES = 2
MOST_TOGETHER = 64
EXIT_TIMEOUT_S = 10
# Between two test requests; and how long one may take, queued behind other requests.
EVERY_S, PATIENCE_S = 2, 60
LOOK_MS = 200


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--made", type=Path, required=True, help="the directory that the export wrote"
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="writable, not mounted noexec")
    parser.add_argument("--shm-prefix", default=f"embeddings_{os.getpid()}_")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--admin-key-file", type=Path)
    parser.add_argument("--cores", default="", help="empty: all of them")
    parser.add_argument("--decode", default="reduced")
    parser.add_argument("--max-megapixels", type=float, default=50)
    options = parser.parse_args(argv)
    os.umask(0o077)
    if folder := libpython_folder():
        os.environ["LD_LIBRARY_PATH"] = str(folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    network = Network.load(options.made)
    how = Transform(
        **network.transform, decode=options.decode, max_megapixels=options.max_megapixels
    )
    cores = int(options.cores) if options.cores else len(os.sched_getaffinity(0))
    shutil.rmtree(options.run_dir, ignore_errors=True)
    remove_leftovers(options.shm_prefix)  # of one that was killed
    try:
        triton = Server(options.run_dir, MODEL, options.shm_prefix, door(options))
    except FileExistsError as fault:
        print(f"error: {fault.filename} is another user's; remove it", file=sys.stderr)
        return 1
    bind(triton, network, how, cores)
    be_patient(options.run_dir / MODEL_STORE / MODEL / "1" / "communication.py")
    try:
        triton.run_with(lambda: end("its server has exited, or its door"))
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.address, options.address)
        address = own(Address(host, options.port), options.admin_key_file)
        while reason_not_to_trust(address, MODEL):
            time.sleep(LOOK_MS / 1000)
        print(f"serving {MODEL}: {network.name}", flush=True)
        Thread(target=end_when_it_does_not_answer, args=(triton, address), daemon=True).start()
        end_when_it_falls_apart(triton)
    except SystemExit:
        triton.end_children(EXIT_TIMEOUT_S)
        triton.stop()
        raise


def door(options: argparse.Namespace) -> list[str]:
    """Its options; its environment tells it about TLS and API keys."""
    key = options.admin_key_file
    # Nothing is kept here, whatever the server keeps: no command would find it.
    words = [f"--address={options.address}", f"--http-port={options.port}", "--keep="]
    return [*words, *([f"--admin-key-file={key}"] if key else [])]


class Server(TritonBase):  # type: ignore[misc]  # PyTriton comes without types
    """On Unix sockets, which want no token, and behind the door: PyTriton's own start puts its
    token on a command line that everyone can read, and opens a port."""

    def __init__(self, run_dir: Path, model: str, shm_prefix: str, door: list[str]) -> None:
        # In a folder of our own, where nobody else can have put anything.
        run_dir.mkdir(mode=0o700)
        super().__init__(
            "http://127.0.0.1:1",  # where PyTriton would ask it, and nobody answers
            workspace=(run_dir / MODEL_STORE).parent,
            # Laid out before the server starts, which loads it then.
            triton_lifecycle_policy=TritonLifecyclePolicy(
                launch_triton_on_startup=False, local_model_store=True
            ),
        )
        self._programs = [
            [
                "bundle_serving.process.start_server",
                *("--repository", str(run_dir / MODEL_STORE), "--load-model", model),
                *("--run-dir", str(run_dir), "--shm-prefix", shm_prefix),
            ],
            ["bundle_door", "--run-dir", str(run_dir), "--grpc-port=0", "--metrics-port=0", *door],
        ]
        self._children: list[subprocess.Popen[bytes]] = []

    def run_with(self, when_one_ends: Callable[[], object]) -> None:
        """The models may wait for a process for a minute, so the end of one is reported at once."""
        with self._cv:
            self._stopped = False
        self._when_one_ends = when_one_ends
        for program in self._programs:
            child = subprocess.Popen([sys.executable, "-m", *program])
            self._children.append(child)
            Thread(target=self._tell_of_its_end, args=(child,), daemon=True).start()
        self.connect()

    def _tell_of_its_end(self, child: subprocess.Popen[bytes]) -> None:
        child.wait()
        self._when_one_ends()

    def end_children(self, seconds: float) -> None:
        """The door first."""
        self._when_one_ends = lambda: None
        for child in reversed(self._children):
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(seconds)
            child.kill()
            child.wait()

    # What PyTriton would ask its server; whether ours answers is seen by questions.

    def _wait_for_server(self) -> None:
        pass

    def _wait_for_models(self) -> None:
        pass


def bind(triton: Server, network: Network, how: Transform, cores: int) -> None:
    """Each of several callables is an instance; they handle batches in parallel."""
    pool = ThreadPoolExecutor(cores)
    threads = max(1, cores // INSTANCES)
    triton.bind(
        model_name=MODEL,
        infer_func=[Embedder(network, how, threads, pool) for _ in range(INSTANCES)],
        inputs=[Tensor(name=IMAGE, dtype=bytes, shape=(1,))],
        outputs=[
            Tensor(name="embedding", dtype=np.float32, shape=(network.dimensions,)),
            Tensor(name="error", dtype=bytes, shape=(1,)),
            Tensor(name="network", dtype=bytes, shape=(1,)),
        ],
        config=ModelConfig(
            max_batch_size=MOST_TOGETHER,
            batcher=DynamicBatcher(max_queue_delay_microseconds=500),
        ),
        strict=True,
    )


def be_patient(proxy: Path) -> None:
    """This process also waits for the first instance."""
    model.get_config_from_handshake_server = patient(model.get_config_from_handshake_server)
    with proxy.open("a") as file:
        file.write(IN_AN_INSTANCE)


def end_when_it_does_not_answer(triton: Server, address: Address) -> None:
    while (reason := reason_not_to_trust(address, MODEL, PATIENCE_S)) is None:
        time.sleep(EVERY_S)
    if triton.is_connected():  # otherwise it is being stopped
        end(f"it does not answer: {reason}")


def end_when_it_falls_apart(triton: Server) -> NoReturn:
    """A server or stub that has died never comes back, and Triton notices a dead stub late. After a
    PyTritonUnrecoverableError, PyTriton disconnects and keeps waiting."""
    ended = select.poll()
    for process in children_of(os.getpid()):
        ended.register(os.pidfd_open(process), select.POLLIN)
    while triton.is_connected():
        if ended.poll(LOOK_MS):
            end("one of its processes has exited")
    end("an unrecoverable failure (see above)")


def end(why: str) -> NoReturn:
    """Kills all of its processes at once: they would wait for the failed request, and triton.stop()
    for 20 s."""
    print(f"error: {MODEL} stopped: {why}", file=sys.stderr, flush=True)
    for process in list(children_of(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
