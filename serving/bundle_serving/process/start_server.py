"""Starts tritonserver on a model repository; in the images and on the bare host alike.

    python -m bundle_serving.process.start_server --repository model_repository --run-dir build/run

NVIDIA's image has it ready. The one that PyPI's nvidia-pytriton carries wants a backends folder put
together, and its libraries found. Then this process becomes the server.

It listens on Unix sockets that its owner alone can reach (sockets.py), and the door (bundle_door)
speaks HTTP for it: one hostile request ends PyPI's, the last of its kind.
"""

import argparse
import compileall
import configparser
import ctypes
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from bundle_serving.process import cores, sockets, traces
from bundle_serving.process.main_pipeline import DEFAULT, find_main

NGC = Path("/opt/tritonserver")
# In PYTHONPATH there: the packages of door and keeper, which are not for the models.
OF_THE_DOOR = "/opt/door"

# The longest that the door gets at a stop, for the requests in flight (bundle_door.door), and then
# Triton, for which none is left; and a keeper around both.
DOOR_EXIT_S, EXIT_TIMEOUT_S = 26, 10
STOP_S = DOOR_EXIT_S + EXIT_TIMEOUT_S + 2

# What one instance of a Python model asks of other models at the same time. Triton starts as many
# threads for each: by its default, 32, ten pipelines had 1,400 of them, and at a container's limit
# of threads a load never ends.
ASKED_AT_ONCE = 8

STUB = "triton_python_backend_stub"

# What a burst took goes back to the system: else each of the server's 200 threads keeps its share.
# What is larger than a small picture is mapped on its own, and unmapped at once.
LITTLE_KEPT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(128 << 10),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
# The processes of Python models compute with such memory: new pages for each picture cost them a
# third of their speed. In pages of 2 MB, which the kernel may give to those who ask, a network's
# weights are sooner found (benchmark.pages).
REUSED = {
    "MALLOC_ARENA_MAX": "4",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# In a file of AWS's tools -> in the environment.
S3_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_DEFAULT_REGION",
}
START_STUB = """#!/bin/sh
export {settings}
exec "${{0%/*}}/{real}" "$@"
"""


class StartError(RuntimeError):
    """The server cannot be started here; the message says why and what to do."""


def libpython_folder() -> Path | None:
    """Where libpythonX.Y.so is, which the python backend's stub is linked to: this Python's own,
    since the system's may be of an earlier release, which this one's modules do not fit.

    None when only the loader knows.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"libpython{version}.so.1.0"
    for folder in (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"):
        if folder and (Path(folder) / name).exists():
            return Path(folder)
    try:
        ctypes.CDLL(name)
        return None
    except OSError:
        pass
    raise StartError(
        f"{name} is missing, and Triton's python backend needs it; "
        f"install it: apt-get install libpython{version}"
    )


def _tritonserver() -> tuple[Path, Path]:
    """The folders of the server and of its libraries in this interpreter's environment."""
    packages = Path(sysconfig.get_path("purelib"))
    server = packages / "pytriton" / "tritonserver"
    if not server.is_dir():
        raise StartError(
            f"no tritonserver in {packages}; install it: pip install -r requirements/serve.txt"
        )
    return server, packages / "nvidia_pytriton.libs"


def _stub(server: Path) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / STUB
    if not stub.exists():
        raise StartError(
            f"the PyPI tritonserver has no stub for Python {version}; use Python 3.11 or 3.12"
        )
    return stub


def is_ngc() -> bool:
    """Whether this is NVIDIA's image."""
    return (NGC / "bin" / "tritonserver").exists()


def prepare_server(run_dir: Path) -> tuple[Path, Path, dict[str, str]]:
    """The server's binary, its backends, and the environment it is to run in."""
    if is_ngc():
        known = os.environ.get("PYTHONPATH", "").split(":")
        theirs = ":".join(each for each in known if each != OF_THE_DOOR)
        return NGC / "bin" / "tritonserver", NGC / "backends", os.environ | {"PYTHONPATH": theirs}
    server, libraries = _tritonserver()
    folders = [libraries, libpython_folder()]
    assemble_backends(server, run_dir / "backends")
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders if folder),
        # The stub takes the environment of the python3 that is found first.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        **LITTLE_KEPT,
    }
    return server / "bin" / "tritonserver", run_dir / "backends", environment


def assemble_backends(server: Path, folder: Path) -> None:
    """Copies, not links (Triton checks that a backend's path does not escape), and made at each
    start: Triton changes the stub's mode, so it must belong to the user who runs the server."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(server / "backends" / "python", folder / "python")
    real = Path("stub") / STUB
    (folder / "python" / real).parent.mkdir()
    shutil.copy2(_stub(server), folder / "python" / real)
    (folder / "python" / real).chmod(0o700)
    settings = " ".join(f"{name}={value}" for name, value in REUSED.items())
    (folder / "python" / STUB).write_text(START_STUB.format(settings=settings, real=real))
    (folder / "python" / STUB).chmod(0o700)
    ours = Path(__file__).parents[1] / "backends"
    shutil.copytree(ours, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def _for_s3(environment: dict[str, str], file: Path | None, run_dir: Path) -> dict[str, str]:
    """Triton copies each model that it loads; of a server that was killed, the copies stay. Without
    a file it looks for keys itself, as AWS's tools do: by AWS_ROLE_ARN, say."""
    copies = run_dir / "from-s3"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    environment = environment | {"TRITON_AWS_MOUNT_DIRECTORY": str(copies)}
    if file is None:
        return environment
    try:
        return with_s3_keys(environment, file)
    except (OSError, KeyError, configparser.Error) as fault:
        raise StartError(f"cannot read the S3 credentials from {file}: {fault}") from None


def with_s3_keys(environment: Mapping[str, str], file: Path) -> dict[str, str]:
    """With this file's keys instead of any others: in the environment, where no listing of
    containers or process arguments shows them."""
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(file.read_text())
    keys = {S3_KEYS[name]: value for name, value in parsed["default"].items() if name in S3_KEYS}
    others = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    return others | keys | {"AWS_EC2_METADATA_DISABLED": "true"}


def on_sockets(folder: Path, http: bool) -> list[str]:
    """Who opens the folder is its owner, and needs no key."""
    for left in (sockets.GRPC, sockets.METRICS, sockets.TRITONS_HTTP):
        (folder / left).unlink(missing_ok=True)  # by a server that was killed: Triton would refuse
    name, _, port = sockets.GRPC.partition(":")
    listens = [
        f"--grpc-address=unix:{folder / name}",
        f"--grpc-port={port}",
        f"--metrics-address=unix:{folder / sockets.METRICS}",
    ]
    if http:
        return [*listens, f"--http-address=unix:{folder / sockets.TRITONS_HTTP}"]
    return [*listens, "--allow-http=false"]


def rate_limited(repository: str) -> list[str]:
    """Triton ignores rate limiters unless it is told so at its start. On S3 none is looked for."""
    configs = (each.read_text(errors="replace") for each in Path(repository).rglob("*.pbtxt"))
    return (
        ["--rate-limit=execution_count"] if any("rate_limiter" in each for each in configs) else []
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    repository = os.environ.get("REPOSITORY")
    parser.add_argument("--repository", default=repository, required=not repository)
    parser.add_argument("--s3-credentials", default=os.environ.get("S3_CREDENTIALS"), type=Path)
    parser.add_argument("--run-dir", required=True, type=Path, help="writable, not mounted noexec")
    parser.add_argument("--load-model", action="append", metavar="NAME", help="may be repeated")
    parser.add_argument("--config-name", default="cpu")
    parser.add_argument("--shm-prefix", default="triton_bundle_")
    parser.add_argument(
        "--http-socket", action="store_true", help="also serve Triton's own HTTP there"
    )
    options = parser.parse_args(argv)
    try:
        binary, backends, environment = prepare_server(options.run_dir)
        if options.s3_credentials or options.repository.startswith("s3://"):
            environment = _for_s3(environment, options.s3_credentials, options.run_dir)
        folder = sockets.folder(options.run_dir)
        listens = on_sockets(folder, options.http_socket)
        # Empty, it turns the reports off: benchmark.watched measures what they cost.
        environment.setdefault(sockets.STEPS_VARIABLE, str(folder / sockets.STEPS))
        environment[cores.VARIABLE] = cores.files_of(options.shm_prefix)
    except (StartError, sockets.NotPrivate) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    names = options.load_model or [find_main(options.repository)]
    command = [
        str(binary),
        f"--model-repository={options.repository}",
        # What clients read to ask the main pipeline; of the usual one, the server's usual name.
        *([f"--id={names[0]}"] if names[0] != DEFAULT else []),
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        "--strict-readiness=false",  # else a model that loads, or fails to, makes it unready
        *(f"--load-model={name}" for name in names),
        f"--model-config-name={options.config_name}",
        # Ours are complete; to complete one, a process is started that takes as long as to load.
        *([] if is_ngc() else ["--disable-auto-complete-config"]),
        f"--backend-config=python,shm-region-prefix-name={options.shm_prefix}",
        f"--backend-config=python,thread-pool-size={ASKED_AT_ONCE}",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        *rate_limited(options.repository),
        *listens,
        *traces.triton_options(),
    ]
    # Else the stub would write these files, and the next load take the model for a changed one.
    compileall.compile_dir(options.repository, quiet=2)
    os.umask(0o077)  # pictures pass through shared memory
    os.execve(binary, command, environment)


if __name__ == "__main__":
    sys.exit(main())
