"""Commands that look at a server, or after it."""

import subprocess
from types import SimpleNamespace
from unittest.mock import patch

from scripts.base import tables
from scripts.base.findings import FAILURE, OK, WARNING, Finding
from scripts.base.paths import ROOT
from scripts.measuring.one_request import spans
from scripts.server.triton.models import Model
from tests.shown.running import KNOWN, MODELS, SERVER, STACK, STEPS, VERSION, command, run


def help_() -> None:
    subprocess.run(["make", "help", "ALL=1"], cwd=ROOT, check=True)


def doctor() -> None:
    found = [
        Finding("system", OK, "Linux x86_64, glibc 2.36"),
        Finding("http port", FAILURE, "8000 is used by python3.11 (pid 4242)",
                "stop it, or make up HTTP_PORT=8100"),
        Finding("weights", WARNING, "torchvision's are not available: the index cannot be reached",
                "WEIGHTS=file.pth; or to see it run, as make demo does, ARCH=drawn"),
    ]  # fmt: skip
    with patch.object(command("doctor"), "examine", lambda _: found):
        command("doctor").main()


def status() -> None:
    counts = [{"model": name, "version": "12", "answered": 1_234_567, "failed": 12, "ms": 1234.56}
              for name in MODELS]  # fmt: skip
    told = {
        "/answered": counts,
        "/models/stats": {"model_stats": [{"name": name, "version": "12"} for name in MODELS]},
        "/shadows": [],
        "": {"version": "2.72.0"},
    }
    run("status", {
        "scripts.stacks.state.load": lambda: KNOWN,
        "scripts.server.served.find_served_version": lambda: VERSION,
        "scripts.stacks.flavour.stack": lambda *_: STACK,
        "scripts.server.served.unhealthy_reason": lambda *_: None,
        "scripts.server.triton.triton_api.get": lambda _, path="": told[path],
        "scripts.repository.live.describe_network": lambda name, _: f"{name}, serving mobilenet_v2",
    })  # fmt: skip


def models() -> None:
    index = [Model(name, "12", "READY") for name in MODELS]
    index += [Model("birds_onnx", "3", "UNAVAILABLE", "unloaded by a user who asked for it")]
    made = "resnet50 with weights of /home/ann/models/birds/2026/checkpoint-000123.pth, opset 17"
    manifest = SimpleNamespace(describe=lambda: made)
    run("models", {
        "scripts.stacks.state.load": lambda: KNOWN,
        "scripts.server.triton.models.index": lambda _: index,
        "scripts.server.triton.models.list_needed": set,
        "scripts.artefacts.manifest.Manifest.load": lambda _: manifest,
    })  # fmt: skip


def trace() -> None:
    steps = [
        {"name": name, "start_ms": 100.5 + 900 * n, "ms": 800.25} for n, name in enumerate(STEPS)
    ]
    timings = {
        "total_ms": 3000.0,
        "spans": [{"name": "received", "start_ms": 0.0, "ms": 1.0}, *steps],
    }
    found = spans({"preparing the request": 0.4, "connecting": 0.2}, 3012.0, timings)
    run("trace", {
        "scripts.recipes.asking.find_asked": lambda *_: [__file__],
        "scripts.server.running.ensure_served": lambda _: KNOWN,
        "scripts.measuring.one_request.ask_traced": lambda *_: ("mug, 98.7%", found),
    })  # fmt: skip


def drift() -> None:
    moved = [{"class": "television, television system", "then": 0.992, "now": 0.0}]
    told = [{"model": STEPS[1], "version": "12", "answers": 12_345, "wanted": 1000, "taken": 1.7e9,
             "index": {"class": 14.75, "confidence": 2.04}, "moved": moved,
             "accuracy": {"labelled": 0.912, "estimated": 0.81, "at most": 0.853},
             "classes": [{"class": moved[0]["class"], "labelled": 0.93, "estimated": 1.0,
                          "at least": 0.842, "at most": 1.0}]}]  # fmt: skip
    known = SimpleNamespace(flavour="cpu", http=SERVER, require_one_server=lambda: None)
    run("drift", {
        "scripts.stacks.state.load": lambda: known,
        "scripts.server.triton.triton_api.get": lambda *_: told,
        "scripts.repository.live.describe_network": lambda name, _: f"{name}, serving mobilenet_v2",
    })  # fmt: skip


def prune() -> None:
    module = command("prune")
    items = [module.Item("version 11, previous", 123_456_789, 12, ""),
             module.Item("build/cache/hub/checkpoints/mobilenet_v2-7ebf99e0.pth", 14_200_000, 45,
                         "older than 30 days")]  # fmt: skip
    tables.show("rrll", ("size", "days", "what", "can go"), map(module.make_row, items))


def keys() -> None:
    clients = [("the-web-shop-of-our-company", "12.5"), ("ann", "any")]
    module = command("keys")
    with patch.object(module, "list_clients", lambda: clients), patch.object(module, "lock"):
        module.main()


def logs() -> None:
    """Of the keeper, the door and Triton, and what has no time of its own."""
    lines = (
        "2026-11-26T10:30:00.123Z keeper: resnet50_onnx was not loaded, though it should be: "
        "loaded it, and asked it whether it answers",
        "2026-11-26T10:30:01.456Z door: 200 POST /classify 12345.6 ms 3,456,789 bytes of "
        "192.0.2.7, request 7f3a9c1e-5d2b-4e8f-9a6b-1c2d3e4f5a6b",
        "I1126 10:30:02.789012 107 server.cc:674] loaded",
        '  File "/opt/venv/lib/python3.11/site-packages/bundle_serving/step.py", line 7, in run',
    )

    def read(_: bool) -> subprocess.Popen[str]:
        return subprocess.Popen(["printf", "%s\n", *lines], stdout=subprocess.PIPE, text=True)

    run("logs", {
        "scripts.stacks.state.load": lambda: KNOWN,
        "scripts.stacks.flavour.stack": lambda *_: SimpleNamespace(log_process=read),
        "scripts.commands.operate.logs.read_refused_log": list,
    })  # fmt: skip


SHOWN = {
    "help": help_, "doctor": doctor, "status": status, "models": models, "trace": trace,
    "drift": drift, "prune": prune, "keys": keys, "logs": logs,
}  # fmt: skip

NOTES_ALONE = {
    "load": "which model, and in how many seconds",
    "unload": "which models",
    "down": "that it is down, and what is kept",
    "images": "what was pushed",
    "clean": "what was removed",
    "scale": "a warning, if any",
}
ELSEWHERE = {"version": "one word"}
