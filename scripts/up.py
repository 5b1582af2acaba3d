"""Brings the server up: exports, proves and lays out what does not fit yet, then serves it.

    make up [FLAVOUR=gpu|cpu|local] [ARCH=resnet50] [WEIGHTS=default|random|FILE] [PRECISION=auto]

What is up and fits already is left alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from functools import partial
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from bundle_serving.server_log import first_error
from bundle_serving.start_server import PIPELINE
from scripts.bootstrap import ROOT
from scripts.errors import UserError, guarded
from scripts.host import admin_key, console, engines, flavour, lock, settings, state
from scripts.host.engines import ONNX
from scripts.host.flavour import Stack
from scripts.host.settings import PORTS, Settings
from scripts.host.state import State
from scripts.pipeline import repository
from scripts.pipeline.manifest import Manifest, Wanted, why_export
from scripts.pipeline.repository import GPU, Decoding, Engine, Share

REPOSITORY = ROOT / "model_repository"

# A network's hash stands in the manifest beside it.
NOT_HASHED = (".onnx", ".plan", ".pyc")


def main() -> int:
    bring_up(settings.load())
    return 0


def bring_up(wished: Settings) -> State:
    with lock.one_at_a_time():
        name, why = flavour.choose(wished)
        console.note(f"flavour {name}: {why}")
        if wished["PREPROCESS"] == "dali" and name != "gpu":
            raise UserError(
                f"PREPROCESS=dali needs a GPU, and flavour {name} has none", "leave it out"
            )
        stack = flavour.stack(name, wished)
        stack.prepare()
        export(stack, wished)
        lay_out(wished, engines.of(stack), _engine(stack, wished), REPOSITORY)
        return _serve(stack, wished)


def export(stack: Stack, wished: Settings) -> None:
    precision = "fp16" if engines.of(stack) is GPU else "fp32"
    wanted = Wanted(wished["ARCH"], wished.weights, precision)
    reason = why_export(ONNX, wanted)
    if reason is None:
        return
    console.note(f"export: {reason}")
    weights = wanted.weights if wanted.named else Path(wanted.weights)
    folder = wished.folder("SAMPLES")
    samples: list[str | Path] = ["--samples", folder] if folder else []
    stack.run_step(
        "export",
        *("--arch", wanted.arch, "--weights", weights, "--precision", precision),
        *(*samples, "--out", ONNX),
    )


def _engine(stack: Stack, wished: Settings) -> Path:
    return engines.make(stack, wished, partial(lay_out, wished))


def lay_out(wished: Settings, engine: Engine, made: Path, target: Path) -> None:
    def share(model: str) -> Share:
        return Share.of(
            wished.cores, wished.number(f"{model}_INSTANCES"), wished.number(f"{model}_THREADS")
        )

    repository.lay_out(
        ONNX,
        engine,
        made,
        target,
        Decoding(wished["PREPROCESS"], wished["DECODE"], float(wished["MAX_MEGAPIXELS"])),
        share("PREPROCESS"),
        share("NETWORK"),
    )


def _serve(stack: Stack, wished: Settings) -> State:
    wanted = State(stack.flavour, _fingerprint(stack, wished), wished.values)
    known = state.load()
    if known and known.fingerprint == wanted.fingerprint and stack.alive():
        if reason_not_to_trust(f"http://{known.http}", PIPELINE) is None:
            console.note(f"up already: {described(known)}")
            return known
        console.note("the server is there but does not answer: it is started afresh")
    if known:
        flavour.stack(known.flavour, known.started_with).stop()
    try:
        stack.start(wanted)
        _wait(stack, wanted, float(wished["START_TIMEOUT"]))
    except BaseException:  # Ctrl-C too: no server is left that nobody knows to work
        stack.stop()
        raise
    console.note(f"up: {described(wanted)}")
    return wanted


def _wait(stack: Stack, wanted: State, limit: float) -> None:
    """Until a picture is answered; readiness alone is green over a pipeline that is not."""
    with console.waiting("starting the server, until it answers a picture") as waiting:
        while reason := reason_not_to_trust(f"http://{wanted.http}", PIPELINE):
            waiting.show(reason)
            if not stack.alive():
                said = first_error(stack.log()) or reason
                raise UserError(f"the server stopped while it started: {said}", stack.log_hint)
            if waiting.seconds > limit:
                raise UserError(
                    f"the server did not answer within {limit:.0f} s ({reason})",
                    "see make logs; on a slow machine raise START_TIMEOUT",
                )
            time.sleep(0.2)


def described(server: State) -> str:
    manifest = Manifest.load(ONNX / "manifest.json")
    what = manifest.describe() if manifest else "a network"
    return f"{what}, flavour {server.flavour}, HTTP {server.http}, gRPC {server.grpc}"


def _fingerprint(stack: Stack, wished: Settings) -> str:
    """One hash over all that a running server was started from."""
    hasher = hashlib.sha256()
    for path in sorted(REPOSITORY.rglob("*")):
        if path.is_file() and path.suffix not in NOT_HASHED:
            hasher.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    started_with = [stack.version(), *(wished[name] for name in ("BIND", *PORTS, "MEMORY"))]
    started_with.append(str(admin_key.mark()))
    hasher.update(json.dumps(started_with).encode())
    return hasher.hexdigest()


if __name__ == "__main__":
    sys.exit(guarded(main))
