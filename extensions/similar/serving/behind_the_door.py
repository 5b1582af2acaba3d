"""A server of our own for PyTriton's models: on Unix sockets, which want no token, and behind the
door.

PyTriton's own start puts its token on a command line that everyone can read, and opens a port.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from pytriton.triton import TritonBase, TritonLifecyclePolicy

MODEL_STORE = Path("work") / "model-store"


class Server(TritonBase):  # type: ignore[misc]  # PyTriton comes without types
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
