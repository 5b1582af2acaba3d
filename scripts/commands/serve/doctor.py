"""Looks for common problems and prints the fix for each.

    make doctor

Exit 1 if something prevents `make up`; limitations are warnings.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from bundle_serving.process.start_server import StartError, libpython_folder
from scripts import bootstrap
from scripts.artefacts import gpus
from scripts.base import console, ports, tables
from scripts.base.errors import UserError
from scripts.base.findings import FAILURE, OK, WARNING, Finding, disks, judge, room
from scripts.base.paths import PYTHON, ROOT, VENV
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from scripts.recipes import pipelines
from scripts.repository import archive
from scripts.server.torchvision_weights import why_unavailable
from scripts.settings.choices import DRAWN
from scripts.settings.settings import Settings
from scripts.stacks import docker_engine, flavour, state
from scripts.stacks.containers import DockerStack
from scripts.stacks.gpu import GpuStack
from scripts.stacks.local import require_files, require_plain_path

# On the project's disk, the environment with all layers takes 1.6 GB and an export 0.3 GB. On
# Docker's disk, the two CPU images take 2.2 GB; NVIDIA's pytorch, tritonserver and sdk images take
# tens of gigabytes once unpacked.
PROJECT_GB = 2
IMAGES_GB = {"cpu": 3, "gpu": 80}
MEMORY_GB = 3

# For a plan with batches of 256, two execution contexts, and the builder's workspace.
GPU_MEMORY_MIB = 6000

SHM_MB = 512


def main() -> int:
    settings = Settings.load()
    with console.waiting("checking this machine"):
        findings = list(examine(settings))
    tables.show("lll", (), map(make_row, findings))
    failures = sum(finding.verdict == FAILURE for finding in findings)
    problems = f"{failures} problem{'s' * (failures != 1)} found"
    console.note(problems if failures else "everything needed is here")
    return 1 if failures else 0


def make_row(finding: Finding) -> tuple[Text, str, str]:
    detail = "; to fix it: ".join(filter(None, (finding.detail, finding.fix)))
    return Text.from_markup(finding.verdict), finding.what, detail


def examine(settings: Settings) -> Iterator[Finding]:
    yield _system()
    yield Finding("python", OK, f"Python {platform.python_version()} in {VENV.name}")
    obstacle = docker_engine.why_not_served()
    is_local = bool(obstacle) or settings.flavour == "local"
    yield from _docker(obstacle, settings)
    yield from disks(ROOT, ROOT / "build", PROJECT_GB, VENV.exists(), archive.HERE.exists())
    if is_local:
        yield from _local()
    elif settings.flavour == "gpu" or (not settings.flavour and flavour.has_driver()):
        yield from _gpu(settings)
        yield from _images(GpuStack(settings))
    else:
        yield from _images(DockerStack(settings))
    yield _memory()
    yield from _ports(settings, by_engine=not is_local)
    yield _weights(settings)
    yield _libb64()
    yield _installer()


def _system() -> Finding:
    found = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    libc = tuple(int(part) for part in platform.libc_ver()[1].split(".") if part.isdecimal())
    machine = platform.machine()
    known = machine in ("x86_64", "aarch64")
    if platform.system() != "Linux" or not known or libc < (2, 35):
        fix = "use Linux on x86-64 or ARM64: Debian 12, Ubuntu 22.04 or later"
        return Finding("system", FAILURE, found, fix)
    if machine == "aarch64":
        return Finding("system", WARNING, found, "ARM64 is less tested: see docs/limits.md")
    return Finding("system", OK, found)


def _docker(obstacle: str | None, settings: Settings) -> Iterator[Finding]:
    if obstacle:
        detail, _, fix = obstacle.rstrip(")").partition(" (")
        verdict = FAILURE if settings.flavour not in ("", "local") else WARNING
        yield Finding("docker", verdict, detail, f"{fix}; without it: flavour local")
        return
    version = ".".join(map(str, docker_engine.compose_version() or ()))
    yield Finding("docker", OK, f"Docker answers, Compose {version}")
    builder = subprocess.run(["docker", "buildx", "version"], capture_output=True, text=True)
    if builder.returncode:
        yield Finding("buildx", FAILURE, "no BuildKit plugin", f"see {docker_engine.INSTALL}")


def _local() -> Iterator[Finding]:
    if not bootstrap.can_serve():
        fix = "install Python 3.11 or 3.12, then make clean && make up PYTHON=python3.12"
        yield Finding("stub", FAILURE, "Triton's python backend needs Python 3.11 or 3.12", fix)
    try:
        folder = libpython_folder()
        yield Finding("libpython", OK, f"in {folder}" if folder else "the loader finds it")
    except StartError as fault:
        missing = UserError.from_fault(fault)
        yield Finding("libpython", FAILURE, missing.cause, missing.remedy)
    for what, require in {"folder": require_plain_path, "files": require_files}.items():
        try:
            require()
        except UserError as fault:
            yield Finding(what, FAILURE, fault.cause, fault.remedy)
    free = shutil.disk_usage("/dev/shm").free // 2**20
    fix = "mount -o remount,size=1g /dev/shm"
    yield judge("/dev/shm", free >= SHM_MB, f"{free} MB free", fix)


def _gpu(settings: Settings) -> Iterator[Finding]:
    stack, tag = GpuStack(settings), settings.triton_tag
    try:
        gpu = stack.gpu
        yield Finding("gpu", OK, f"{stack.description}, {gpu.memory}, seen from a container")
        warning = gpus.require_fit(gpu, tag)
    except UserError as fault:
        yield Finding("gpu", FAILURE, fault.cause, fault.remedy)
        return
    yield Finding("driver", WARNING if warning else OK, warning or gpu.driver)
    roomy = gpus.number(gpu.memory) >= GPU_MEMORY_MIB
    fix = "a small ARCH=, and a smaller OPT_BATCH="
    yield judge("gpu memory", roomy, gpu.memory, fix, WARNING)
    yield Finding("images", OK, f"pytorch, tritonserver and sdk are all of {tag}")


def _images(stack: DockerStack) -> Iterator[Finding]:
    if disk := stack.images.find_disk():
        yield room(
            "images' disk", disk, IMAGES_GB[stack.flavour], stack.images.has("export", "server")
        )


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    fix = "export and serving need about 3 GB; a small ARCH= needs less"
    return judge("memory", total >= MEMORY_GB, f"{total:.0f} GB", fix, WARNING)


def _ports(settings: Settings, by_engine: bool) -> Iterator[Finding]:
    known = state.load()
    ours = {*known.settings_at_start.ports.values()} if known else set()
    for name, port in settings.ports.items():
        try:
            who = None if port in ours else ports.holder(settings.bind, port, by_engine)
        except UserError as fault:
            yield Finding("address", FAILURE, fault.cause, fault.remedy)
            return
        detail = f"{port} {'is used by this server' if port in ours else who or 'is free'}"
        fix = f"stop it, or make up {name}={ports.propose(port)}"
        yield judge(name.replace("_", " ").lower(), not who, detail, fix)


def _weights(settings: Settings) -> Finding:
    if settings.from_ or pipelines.main_name() != pipelines.DEFAULT:
        return Finding("weights", OK, "the main pipeline has a network of its own")
    weights = settings.weights
    if weights == "random":
        return Finding("weights", WARNING, "untrained: the labels mean nothing", "WEIGHTS=default")
    if weights != "default":
        fix = "give an existing .pth or .safetensors file"
        return judge("weights", Path(weights).is_file(), weights, fix)
    if settings.arch == DRAWN:
        return Finding("weights", OK, "the project's own, of drawings")
    if reason := why_unavailable():
        fix = "WEIGHTS=file.pth; or to see it run, as make demo does, ARCH=drawn"
        return Finding("weights", WARNING, f"torchvision's are not available: {reason}", fix)
    return Finding("weights", OK, "torchvision's can be downloaded")


def _libb64() -> Finding:
    good = has_libb64()
    detail = "installed (for make bench)" if good else "missing; make bench needs it"
    return judge("libb64", good, detail, LIBB64_REMEDY, WARNING)


def _installer() -> Finding:
    """Whether pip reaches its index; pip itself knows its settings best."""
    command = [str(PYTHON), "-m", "pip", "index", "versions", "nvidia-pytriton"]
    try:
        good = subprocess.run(command, capture_output=True, timeout=15).returncode == 0
    except subprocess.TimeoutExpired:
        good = False
    fix = "check the network and PIP_INDEX_URL, PIP_CERT, or a proxy's variables"
    return judge("pip", good, "reaches its index" if good else "no index", fix, WARNING)
