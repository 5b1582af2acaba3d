"""Runs the whole gpu flow in a copy of the project and checks the claims in docs/gpu.md."""

import getpass
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.artefacts.picture import mug
from scripts.base import console, files
from scripts.base.paths import PYTHON, ROOT
from scripts.base.ports import free_ports
from scripts.measuring.claims import LABELLED, PICTURE, ROWS, STEPS, Row, Step
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import GPU
from scripts.settings.settings import PORTS
from scripts.steps.engine import processor

# Generated files, and what the flow does not need.
NOT_COPIED = (".git", ".venv", "build", "docs", "tests", "__pycache__", ".*_cache", "*.whl")
LINES = 40  # the last lines of a step's output
TRITON = r"^Triton \d"  # what it says of itself
OUTSIDE = re.compile(r"""(?m)^(\w+: ["']?)(\.\./\.\./[^"'\n]+)""")  # of own/, by a recipe in it
BEGUN = ROOT / "build" / "proof" / "begun.json"
ANSWERS = {True: "yes", False: "no", None: "does not apply"}


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
    """Continues after failures, and where an earlier run was interrupted; leaves nothing behind."""
    project, outcomes = _go_on() or (_copy(), [])
    if outcomes:
        console.note(f"going on after {outcomes[-1].step}")
        _ran(STEPS[0], project)
    _keep(project, outcomes)
    for step in STEPS[len(outcomes) :]:
        outcomes.append(_ran(step, project))
        _keep(project, outcomes)
    about = _versions(project.path, outcomes)
    _remove(project)
    return {
        "kind": "triton-bundle proof",
        **about,
        "rows": [asdict(_judge_row(row, outcomes)) for row in ROWS],
        "steps": [asdict(outcome) for outcome in outcomes],
    }


@dataclass(frozen=True)
class Copy:
    path: Path
    own: dict[str, str]  # settings

    @property
    def environment(self) -> dict[str, str]:
        words = {"SERVER": f"{self.own['COMPOSE_PROJECT_NAME']}-server-1"}
        words["NETWORK"] = str(pipelines.main().recipe.network_model(GPU))
        words["PATH"] = f"{PYTHON.parent}:{os.environ['PATH']}"
        return os.environ | self.own | words


def _copy() -> Copy:
    """With its own ports, repository and Compose project: the running server is left alone, and
    nothing reaches the bucket that .env may name."""
    folder = Path(tempfile.mkdtemp(prefix="triton-bundle-proof-", dir="/tmp"))
    path = folder / folder.name.replace("_", "-")
    shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*NOT_COPIED))
    (path / PICTURE).parent.mkdir()
    mug().save(path / PICTURE)
    (path / LABELLED / "coffee mug").mkdir(parents=True)
    shutil.copy(path / PICTURE, path / LABELLED / "coffee mug")
    (path / ".venv").symlink_to(ROOT / ".venv")
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    own = {"FLAVOUR": "gpu", "REPOSITORY": "", "COMPOSE_PROJECT_NAME": path.name.lower()}
    own["BIND"] = "127.0.0.1"
    own |= {"OWN": str(_copy_own(path / "own")), "MAIN": pipelines.main_name()}
    return Copy(path, ports | own)


def _copy_own(path: Path) -> Path:
    """The user's pipelines: the proof adds some. What they name outside of their folder, from where
    they lie, stays where it is."""
    theirs = folders.own()
    if theirs.folder.is_dir():
        shutil.copytree(theirs.folder, path, dirs_exist_ok=True)
    for recipe in path.glob("recipes/*.yaml"):
        named = OUTSIDE.sub(
            lambda found: found[1] + str((theirs.recipes / found[2]).resolve()), recipe.read_text()
        )
        recipe.write_text(named)
    return path


def _remove(project: Copy) -> None:
    _ran(Step("clean", "clean"), project)
    shutil.rmtree(project.path.parent)
    BEGUN.unlink()


def _keep(project: Copy, outcomes: Sequence[Outcome]) -> None:
    kept = {"folder": str(project.path), "own": project.own, "commit": _ask(ASKED["commit"])}
    files.write(BEGUN, json.dumps(kept | {"outcomes": [asdict(each) for each in outcomes]}))


def _go_on() -> tuple[Copy, list[Outcome]] | None:
    """With the copy of a run that was interrupted."""
    if not BEGUN.exists():
        return None
    kept = json.loads(BEGUN.read_text())
    if not Path(kept["folder"]).is_dir():  # the machine was started anew
        return None
    project = Copy(Path(kept["folder"]), kept["own"])
    if kept["commit"] != _ask(ASKED["commit"]):  # a report is of one
        _remove(project)
        return None
    return project, [Outcome(**each) for each in kept["outcomes"]]


def _ran(step: Step, project: Copy) -> Outcome:
    console.note(f"{step.name} …")
    began = time.monotonic()
    program = [str(PYTHON), "-m", "scripts.program", "--folder", "."]  # make may be missing
    bundle = f'bundle() {{ {shlex.join(program)} "$@"; }}'
    is_shell = step.does.split()[1:]
    command = ["sh", "-ec", f"{bundle}\n{step.does}"] if is_shell else [*program, step.does]
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


def _versions(project: Path, outcomes: Sequence[Outcome] = ()) -> dict[str, Any]:
    versions = project / "build" / "versions" / pipelines.main().folder
    plans = sorted(versions.glob("[1-9]*/plan/manifest.json"))
    built: dict[str, Any] = json.loads(plans[0].read_text()) if plans else {}
    specified = any(Path(folder).glob("*") for folder in CDI if Path(folder).is_dir())
    return {
        "versions": {
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
            "kernel": platform.release(),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            **{what: _ask(command) for what, command in ASKED.items()},
            "GPUs come by": "CDI" if specified else "NVIDIA's hook",
            "Triton": "".join(find_line(TRITON, each) for each in outcomes).removeprefix("Triton "),
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
    lines += ["", "<details><summary>All of it, for programs</summary>", "", "```json"]
    lines += [json.dumps(proof), "```", "", "</details>"]
    return "\n".join(lines) + "\n"
