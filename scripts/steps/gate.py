"""Serves a candidate repository and compares its answers with PyTorch's before it is published.

    python -m scripts.steps.gate --repository build/candidate/repository --config gpu \
        --ensemble ensemble_python_resnet50 --questions build/candidate/questions.npz \
        --network resnet50_trt --reference build/versions/1/onnx --precision fp16 \
        --run-dir /run/triton --out build/candidate

Starts the server on the candidate, in the server's environment, and compares the network's scores
with PyTorch's. Out: the ensemble's answers, which are judged by code that knows the pipeline's
kind, and the memory that the candidate's models take.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from bundle_serving.agreement import Agreement, Bound, compare
from bundle_serving.health import reason_not_to_trust
from bundle_serving.infer import Answer, Question, ask
from bundle_serving.process import processes, sockets
from bundle_serving.process.server_log import explain_end
from bundle_serving.protocol import golden
from bundle_serving.protocol.over_socket import AtSocket
from scripts.artefacts.exporting import start
from scripts.artefacts.manifest import Manifest
from scripts.artefacts.progress import tell
from scripts.base import files
from scripts.base.errors import UserError
from scripts.steps import engine

# Added for decoding at reduced scale.
DECODING = 0.05

# Triton's Python backend occasionally ends the whole server: if a process does not get to run for
# a second (github.com/triton-inference-server/server/issues/8882), or over a failing warm-up,
# sometimes before its cause is in the log. A broken version fails again.
STARTS = 4
# What it said, if the candidate is refused.
LOG = "server.log"

# Names this server's shared memory, and is in the command line of each of its models.
MARK = f"triton_gate_{os.getpid()}_"


@dataclass(frozen=True)
class Candidate:
    repository: Path
    ensemble: str
    questions: Path  # requests for the ensemble
    config: str
    run_dir: str  # where it runs
    out: Path
    load: tuple[str, ...] = ()  # more models
    network: str | None = None  # the model to compare with `reference`
    reference: Path | None = None  # the directory that export or quantise wrote
    precision: str = "fp32"
    limit: float = 120  # seconds within which it must answer


def prove(candidate: Candidate) -> None:
    if not candidate.repository.exists():
        tell("there is no candidate to check")
        return
    with serve_candidate(candidate) as connection:
        if candidate.network and candidate.reference:
            asked = engine.references(candidate.reference)
            answers = [_ask(connection, candidate.network, inputs) for inputs, _ in asked]
            scores = np.concatenate([next(iter(each.values())) for each in answers])
            expected = np.concatenate([each for _, each in asked])
            agreement = compare(expected, scores, engine.answers(candidate.reference))
            judge("network", agreement, read_bound(candidate.reference, candidate.precision))
        questions = golden.load(candidate.questions)
        answers = [_ask(connection, candidate.ensemble, each) for each in questions]
        memory = memory_of_models()
    golden.save(candidate.out / "answers.npz", answers)
    files.write(candidate.out / "seen.json", json.dumps({"memory": memory}) + "\n")


def read_bound(made: Path, precision: str) -> Bound:
    """Of programs alone there is no network: `made` does not exist."""
    return engine.read_bound(made, precision) if made.is_dir() else engine.BOUNDS[precision]


def find_served_bound(made: Path, precision: str, pictures: int) -> Bound:
    """Of the ensemble. `made`: the directory that export wrote, if it has a network."""
    manifest = Manifest.load(made / "manifest.json")
    eight_bits = manifest and manifest.eight_bits
    of_network = engine.EIGHT_BITS if eight_bits else engine.BOUNDS[precision]
    return for_the_ensemble(of_network, pictures)


def for_the_ensemble(bound: Bound, pictures: int) -> Bound:
    """If not every picture must keep its label, one of a few may differ; but not the only one."""
    top1 = 1.0 if bound.top1 == 1 or pictures < 2 else min(bound.top1, 1 - 1 / pictures)
    return Bound(bound.difference + DECODING, top1)


def judge(step: str, agreement: Agreement, bound: Bound) -> None:
    tell(f"- {step}: {agreement}")
    if not agreement.within(bound):
        raise UserError(
            f"the accuracy gate failed at the {step}: {agreement}, {bound}",
            "nothing was published; what serves goes on",
        )


@contextmanager
def serve_candidate(candidate: Candidate) -> Iterator[http.client.HTTPConnection]:
    with (
        tempfile.TemporaryDirectory(dir=candidate.run_dir) as run,
        tempfile.TemporaryFile("w+") as log,
    ):
        # Where no other user may send it anything.
        server_at = AtSocket(socket=sockets.folder(Path(run)) / sockets.TRITONS_HTTP)
        command = [sys.executable, "-m", "bundle_serving.process.start_server", "--http-socket"]
        command += ["--shm-prefix", MARK, "--repository", str(candidate.repository)]
        command += ["--run-dir", run, "--config-name", candidate.config]
        for model in (candidate.ensemble, *candidate.load):
            command += ["--load-model", model]
        server, starts = _start(command, log), 1
        try:
            deadline = time.monotonic() + candidate.limit
            while reason := reason_not_to_trust(server_at, candidate.ensemble):
                if (server.poll() or 0) < 0 and starts < STARTS:
                    _end(server)
                    server, starts = _start(command, log), starts + 1
                    deadline = time.monotonic() + candidate.limit
                elif server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    cause = (
                        f"the server ended with code {server.returncode}: {explain_end(log.read())}"
                    )
                    if server.returncode is None:
                        cause = f"no answer within {candidate.limit:.0f} s ({reason})"
                    raise UserError(
                        f"the candidate cannot be served: {cause}",
                        "what serves goes on, and make logs shows what the candidate said; fix the"
                        " cause, and run it again",
                    )
                time.sleep(0.2)
            yield server_at.connection(timeout=60)
        except BaseException:
            log.seek(0)
            files.write(candidate.out / LOG, log.read())
            raise
        finally:
            _end(server)
            sockets.forget(Path(run))


def _start(command: list[str], log: IO[str]) -> subprocess.Popen[bytes]:
    """What an earlier start logged is kept: it may be the only one that told its cause."""
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Kills it with all its models: a graceful stop takes four seconds."""
    server.kill()
    server.wait()
    for pid in _models():
        with suppress(ProcessLookupError):  # it ends by itself without its server
            os.kill(pid, 9)
    processes.remove_leftovers(MARK)


def memory_of_models() -> int:
    """Bytes used by the models' processes; shared memory counts once."""
    total = 0
    for pid in _models():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if "Pss:" in line)
    return total * 1024


def _models() -> list[int]:
    found = (processes.look_at(int(each.name)) for each in Path("/proc").glob("[0-9]*"))
    commands = {each.pid: " ".join(each.arguments) for each in found if each}
    return [pid for pid, said in commands.items() if processes.STUB in said and MARK in said]


def _ask(connection: http.client.HTTPConnection, model: str, question: Question) -> Answer:
    try:
        return ask(connection, model, question)
    except (OSError, http.client.HTTPException, ValueError) as fault:
        raise UserError(
            f"the accuracy gate failed: {model} does not answer: {fault}",
            "nothing was published; with PREPROCESS=dali, SAMPLES must be readable by DALI",
        ) from None


if __name__ == "__main__":
    start(prove, precision=engine.BOUNDS)
