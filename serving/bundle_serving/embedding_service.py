"""Serves the callable of embeddings.py, by PyTriton, until it fails or is told to stop.

    python -m bundle_serving.embedding_service --made build/embeddings --run-dir build/run/service

It ends as soon as one of its processes does, or it gives itself no embedding when it asks for one
every few seconds: then whoever started it starts it afresh.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NoReturn

# The store for large tensors starts a process of its own from inside Triton's interpreter. Without
# it files go by a socket.
os.environ["PYTRITON_NO_TENSORSTORE"] = "1"

import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.models import model
from pytriton.triton import Triton, TritonConfig, TritonLifecyclePolicy

from bundle_serving.embeddings import Embedder, Network
from bundle_serving.handshake import IN_AN_INSTANCE, patient
from bundle_serving.health import IMAGE, reason_not_to_trust
from bundle_serving.pictures import Transform
from bundle_serving.processes import children_of
from bundle_serving.start_server import libpython_folder

MODEL = "embedding"
INSTANCES = 2
MOST_TOGETHER = 64
EXIT_TIMEOUT_S = 10
# Between two questions to itself; and how long one may take, behind all that others ask.
EVERY_S, PATIENCE_S = 2, 60
LOOK_MS = 200


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--made", type=Path, required=True, help="the directory that the export wrote"
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="writable, not mounted noexec")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--cores", default="", help="empty: all of them")
    parser.add_argument("--decode", default="reduced")
    parser.add_argument("--max-megapixels", type=float, default=50)
    options = parser.parse_args(argv)
    os.umask(0o077)
    if folder := libpython_folder():
        os.environ["LD_LIBRARY_PATH"] = str(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    network = Network.load(options.made)
    how = Transform(
        **network.transform, decode=options.decode, max_megapixels=options.max_megapixels
    )
    cores = int(options.cores) if options.cores else len(os.sched_getaffinity(0))
    shutil.rmtree(options.run_dir, ignore_errors=True)
    triton = Server(
        config=TritonConfig(
            http_address=options.address,
            http_port=options.port,
            allow_grpc=False,
            allow_metrics=False,
            exit_timeout_secs=EXIT_TIMEOUT_S,
        ),
        workspace=options.run_dir,
        # Laid out before the server starts, which loads it then: nothing goes by way of /tmp.
        triton_lifecycle_policy=TritonLifecyclePolicy(
            launch_triton_on_startup=False, local_model_store=True
        ),
    )
    bind(triton, network, how, cores)
    be_patient(options.run_dir / "model-store" / MODEL / "1" / "communication.py")
    try:
        triton.run()
        print(f"serving {MODEL}: {network.said}", flush=True)
        address = "127.0.0.1" if options.address == "0.0.0.0" else options.address
        asked = (triton, f"http://{address}:{options.port}")
        Thread(target=end_when_it_does_not_answer, args=asked, daemon=True).start()
        end_when_it_falls_apart(triton)
    except SystemExit:
        triton.stop()
        raise


class Server(Triton):  # type: ignore[misc]  # PyTriton comes without types
    """PyTriton would ask on for two minutes whether a server that has died is ready."""

    def _on_tritonserver_exit(self, *_: object) -> None:
        end("its server has ended")


def bind(triton: Triton, network: Network, how: Transform, cores: int) -> None:
    """Of several callables each is an instance, that gets a batch while the others have theirs."""
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
    """This process asks the first instance too."""
    model.get_config_from_handshake_server = patient(model.get_config_from_handshake_server)
    with proxy.open("a") as file:
        file.write(IN_AN_INSTANCE)


def end_when_it_does_not_answer(triton: Triton, url: str) -> None:
    while (reason := reason_not_to_trust(url, MODEL, PATIENCE_S)) is None:
        time.sleep(EVERY_S)
    if triton.is_connected():  # else it is told to stop
        end(f"it does not answer: {reason}")


def end_when_it_falls_apart(triton: Triton) -> NoReturn:
    """A server or a stub that is gone never comes back, and Triton sees the latter late. After a
    PyTritonUnrecoverableError PyTriton disconnects itself, and waits on."""
    ended = select.poll()
    for process in children_of(os.getpid()):
        ended.register(os.pidfd_open(process), select.POLLIN)
    while triton.is_connected():
        if ended.poll(LOOK_MS):
            end("one of its processes has ended")
    end("what failed cannot be recovered from (see above)")


def end(why: str) -> NoReturn:
    """At once, and with all of its processes: they would wait for the very request that failed,
    and triton.stop() for 20 s."""
    print(f"error: {MODEL} stopped: {why}", file=sys.stderr, flush=True)
    for process in list(children_of(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
