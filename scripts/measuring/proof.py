"""Runs the whole gpu flow in a copy of the project and checks the claims in docs/gpu.md."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scripts.artefacts.picture import mug
from scripts.base import console
from scripts.base.paths import PYTHON, ROOT
from scripts.base.ports import free_ports
from scripts.recipes import folders, pipelines
from scripts.settings.settings import PORTS

# Generated files, and what the flow does not need.
NOT_COPIED = (".git", ".venv", "build", "docs", "tests", "__pycache__", ".*_cache", "*.whl")
LINES = 40  # the last lines of a step's output
ANSWERS = {True: "yes", False: "no", None: "does not apply"}


@dataclass(frozen=True)
class Step:
    name: str
    target: str  # the make target, or the words of a command
    settings: Mapping[str, str] = field(default_factory=dict)


PICTURE = "build/mug.jpg"

# Whether a rollout loses requests is asked, and not how fast a machine is that others may use too.
UNHURRIED = {"MAX_P99_RATIO": "20"}

# Of the server's container, as it is for the processes in it.
AS_WHOM = (
    """docker exec "$COMPOSE_PROJECT_NAME-server-1" sh -c 'echo "user $(id -u), / is mounted """
    """$(grep " / " /proc/mounts | cut -d " " -f 4 | cut -c 1-2)"'"""
)

STEPS = (
    Step("up", "up"),
    Step("status", "status"),
    Step("user", AS_WHOM),
    Step("classify", "classify", {"IMG": PICTURE, "JSON": "1"}),
    Step("bench", "bench", {"QUICK": "1"}),
    Step("texts", "sentiment", {"TEXT": "What a day!", "SENTIMENT": "minilm"}),
    Step("publish", "publish", {"OPT_BATCH": "16"}),  # a plan of its own, with the same answers
    Step("rollout", "rollout", UNHURRIED),
    Step("rollback", "rollback", UNHURRIED),
    Step("scores on the GPU", "up", {"POSTPROCESS": "gpu"}),
    Step("its log", "logs"),
    Step("dali", "up", {"PREPROCESS": "dali"}),
    Step("down", "down"),
)


@dataclass(frozen=True)
class Row:
    """Confirmed if the step succeeded and printed a line like this; a line like the other says that
    it does not apply."""

    claim: str  # as in docs/gpu.md
    step: str
    sign: str
    not_here: str = ""


# A network of the user's own is taken as it is, and that may be float32.
FLOAT32 = r"built in .* 0 of 0 layers in half"
ROWS = (
    Row("NVIDIA's images hold the programs that the flow calls", "up", r"&&&& PASSED .*\[TensorRT"),
    Row(
        "TensorRT builds the network of pictures from fp16",
        "up",
        r"built in .* [1-9]\d* layers in half",
        FLOAT32,
    ),
    Row("Its layer information names the types", "up", r" [1-9]\d* of \d+ layers in half", FLOAT32),
    Row("fp16 arithmetic stays within the bounds", "up", r"- network: top-1"),
    Row("The server answers", "status", r"^ready · "),
    Row("The server runs as a plain user, read-only", "user", r"^user [1-9]\d*, / is mounted ro"),
    Row("The door and the keeper run in NVIDIA's image", "classify", r'^\{.*"labels"'),
    Row("perf_analyzer measures from the sdk image", "bench", r"- report: "),
    Row("TensorRT builds the classifier of texts", "texts", r"- network: top-1"),
    Row("A version of its own plan is built", "publish", r"built in .* half precision"),
    Row("A rollout on a GPU loses no request", "rollout", r"\b0 of [\d,]+ requests failed"),
    Row("Several GPUs serve together", "up", r"containers see \d+ x ", "containers see "),
    Row("cupy compiles, and GPU memory is shared", "scores on the GPU", r"- ensemble: top-1"),
    Row("cupy computes on the GPU, and says whose it is", "its log", r"scores on GPU \d+ by /"),
    Row("DALI decodes on the GPU", "dali", r"- ensemble: top-1"),
)


@dataclass(frozen=True)
class Outcome:
    step: str
    exit_code: int
    seconds: float
    output: list[str]


@dataclass(frozen=True)
class Verdict:
    claim: str
    confirmed: bool | None  # None: it does not apply here
    words: str


def prove() -> dict[str, Any]:
    """Continues after failures, and leaves nothing behind."""
    with _copy() as project:
        outcomes = [_ran(step, project) for step in STEPS]
        about = _versions(project.path)
    return {
        "kind": "triton-bundle proof",
        **about,
        "rows": [asdict(_judge_row(row, outcomes)) for row in ROWS],
        "steps": [asdict(outcome) for outcome in outcomes],
    }


@dataclass(frozen=True)
class Copy:
    path: Path
    environment: dict[str, str]


@contextmanager
def _copy() -> Iterator[Copy]:
    """With its own ports, repository and Compose project: the running server is left alone, and
    nothing reaches the bucket that .env may name."""
    with tempfile.TemporaryDirectory(prefix="triton-bundle-proof-", dir="/tmp") as folder:
        path = Path(folder) / Path(folder).name.replace("_", "-")
        shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*NOT_COPIED))
        (path / PICTURE).parent.mkdir()
        mug().save(path / PICTURE)
        (path / ".venv").symlink_to(ROOT / ".venv")
        ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        own = {"FLAVOUR": "gpu", "REPOSITORY": "", "COMPOSE_PROJECT_NAME": path.name.lower()}
        own["BIND"] = "127.0.0.1"
        # What the user's recipes name is named from where they lie.
        own |= {"OWN": str(folders.own().folder), "MAIN": pipelines.main_name()}
        project = Copy(path, os.environ | ports | own)
        try:
            yield project
        finally:
            _ran(Step("clean", "clean"), project)


def _ran(step: Step, project: Copy) -> Outcome:
    console.note(f"{step.name} …")
    began = time.monotonic()
    words = step.target.split()
    program = (str(PYTHON), "-m", "scripts.program", "--folder", ".", *words)  # make may be missing
    command = ("sh", "-c", step.target) if words[1:] else program
    done = subprocess.run(
        command,
        cwd=project.path,
        env=project.environment | dict(step.settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = anonymous(done.stdout, project.path).splitlines()
    return Outcome(step.name, done.returncode, round(time.monotonic() - began, 1), output)


def anonymous(text: str, folder: Path) -> str:
    """Without host names and paths."""
    own = (str(folder), str(folder.parent), str(ROOT), str(Path.home()), platform.node())
    for word in (*own, getpass.getuser()):
        if len(word) > 1:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "…", text)
    return text


def _judge_row(row: Row, outcomes: Sequence[Outcome]) -> Verdict:
    (outcome,) = (each for each in outcomes if each.step == row.step)
    line = find_line(row.sign, outcome)
    if outcome.exit_code == 0 and line:
        return Verdict(row.claim, True, line)
    if row.not_here and (line := find_line(row.not_here, outcome)):
        return Verdict(row.claim, None, line)
    if outcome.exit_code == 0:
        return Verdict(row.claim, False, f"`{outcome.step}` succeeded, but did not print this")
    errors = [each for each in outcome.output if each.startswith("error: ")] or outcome.output[-1:]
    return Verdict(row.claim, False, " ".join(errors) or f"exit code {outcome.exit_code}")


def find_line(sign: str, outcome: Outcome) -> str:
    return next((line for line in outcome.output if re.search(sign, line)), "").strip()


def has_failed(proof: Mapping[str, Any]) -> bool:
    """Whether anything that applies here is not confirmed."""
    return any(row["confirmed"] is False for row in proof["rows"])


# Of the machine, by its programs; one that is missing says nothing.
ASKED = {
    "commit": ("git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty"),
    "docker": ("docker", "version", "--format", "{{.Server.Version}}"),
    "driver": ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    "container toolkit": ("nvidia-ctk", "--version"),
    "images": ("docker", "images", "--digests", "--filter", "reference=nvcr.io/nvidia/*",
               "--format", "{{.Repository}}:{{.Tag}}@{{.Digest}}"),
}  # fmt: skip
CDI = ("/etc/cdi", "/var/run/cdi")


def _ask(command: Sequence[str]) -> str:
    try:
        asked = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return ", ".join(asked.stdout.split("\n")[:-1]) if asked.returncode == 0 else ""


def _versions(project: Path) -> dict[str, Any]:
    versions = project / "build" / "versions" / pipelines.main().folder
    plans = sorted(versions.glob("[1-9]*/plan/manifest.json"))
    built: dict[str, Any] = json.loads(plans[0].read_text()) if plans else {}
    specified = any(Path(folder).glob("*") for folder in CDI if Path(folder).is_dir())
    processor = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    return {
        "versions": {
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
            "kernel": platform.release(),
            "processor": processor[1] if processor else platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            **{what: _ask(command) for what, command in ASKED.items()},
            "GPUs come by": "CDI" if specified else "NVIDIA's hook",
            "TensorRT": built.get("identity", {}).get("TensorRT", ""),
            "plan": built.get("plan", {}).get("sha256", ""),
        },
        "gpu": built.get("gpu", {}),
    }


def as_markdown(proof: dict[str, Any]) -> str:
    applies = [row["confirmed"] for row in proof["rows"] if row["confirmed"] is not None]
    lines = [f"# {proof['kind']}: {sum(applies)} of {len(applies)} confirmed", ""]
    lines += [f"- {name}: {value}" for name, value in (proof["versions"] | proof["gpu"]).items()]
    lines += ["", "| | confirmed | in the program's own words |", "|---|---|---|"]
    for row in proof["rows"]:
        words = row["words"].replace("|", "\\|")
        lines.append(f"| {row['claim']} | {ANSWERS[row['confirmed']]} | {words} |")
    for step in proof["steps"]:
        lines += ["", f"## {step['step']}: exit code {step['exit_code']}, {step['seconds']} s", ""]
        lines += ["```", *step["output"][-LINES:], "```"]
    return "\n".join(lines) + "\n"
