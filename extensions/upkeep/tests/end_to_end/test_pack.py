"""From a pack to an answer, where no packet leaves the machine."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from extensions.upkeep import pack
from tests.end_to_end.own.test_own_main import write_steps
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import ROOT, Project, free_ports, picture, run

INSTALL = ROOT / "extensions" / "upkeep" / pack.INSTALL

# A Docker engine with a place of its own, in a network namespace without a route.
OWN_ENGINE = """
folder=$(mktemp -d)
mkdir -p /run/docker && mount -t tmpfs none /run/docker
export DOCKER_HOST=unix://$folder/sock
dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" \
    --host "$DOCKER_HOST" > "$folder/log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true; rm -rf "$folder"' EXIT
until docker version > /dev/null 2>&1; do kill -0 $engine; done
"""

SERVE = """
export FLAVOUR={flavour} HTTP_PORT={0} GRPC_PORT={1} METRICS_PORT={2}
make up
trap 'make down' EXIT
make classify IMG={picture} JSON=1
"""


def small(folder: Path) -> Path:
    """A pack that has nothing but what is checked first."""
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / "tiny.whl").write_text("a package")
    (folder / "python").write_text("3.11\n")
    shutil.copy2(INSTALL, folder / pack.INSTALL)
    pack.write_sums(folder)
    return folder


@pytest.mark.parametrize("spoil", ["missing", "another"])
def test_a_pack_that_is_not_whole_is_refused(tmp_path: Path, spoil: str) -> None:
    wheel = small(tmp_path / "pack") / "wheels" / "tiny.whl"
    wheel.unlink() if spoil == "missing" else wheel.write_text("another package")
    command: list[str | Path] = ["sh", tmp_path / "pack" / pack.INSTALL, tmp_path / "there"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and not (tmp_path / "there").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the pack is not whole: ") and "wheels/tiny.whl" in line
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").touch()
    done = subprocess.run(command, capture_output=True, text=True)
    assert "there is not empty; name a new folder" in done.stderr


def without_a_network(script: str, cwd: Path) -> str:
    """Its output; the namespace has nothing but a loopback."""
    inside = f'set -eu; ip link set lo up; test -z "$(ip route)"; {script}'
    command = ["unshare", "--net", "--mount", "bash", "-c", inside]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def packed(tmp_path: Path, exported: Path, whose: str) -> Iterator[Path]:
    project = Project.copy(tmp_path / "here", FLAVOUR="")
    if whose == "ours":
        project.take(exported)
    else:
        project.settings |= {"ARCH": "", "WEIGHTS": ""}
        network = draw_network(tmp_path / f"{whose}.onnx")
        write_steps(tmp_path)
        project.made("up", FLAVOUR="local", FROM=str(network), TRUST="1")
        project.made("down")
    try:
        project.made("pack", f"TO={tmp_path / 'pack'}")
        for name in ("wheels", "requirements.txt") if whose == "birds" else ():
            (tmp_path / name).rename(tmp_path / f"gone {name}")
        yield tmp_path / "pack"
    finally:
        for image in run("docker", "images", "--quiet", f"{project.path.name}-*").split():
            run("docker", "rmi", "--force", image)


@pytest.mark.rare
@pytest.mark.parametrize("whose", ["ours", "birds"])
def test_a_pack_serves_without_a_network(tmp_path: Path, exported: Path, whose: str) -> None:
    """Of the internet, that is."""
    require_docker()
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no network namespaces here")
    noise = tmp_path / "noise.jpg"
    noise.write_bytes(picture())
    with packed(tmp_path, exported, whose) as folder:
        listed = json.loads((folder / "sbom.json").read_text())["components"]
        versions = {each["name"]: each["version"] for each in listed}
        wheels = sorted(path.name for path in (folder / "wheels").iterdir())
        assert len(wheels) > 50 and versions["nvidia-pytriton"] and versions["libc6"]
        assert all(any(each.startswith(f"{name.partition('-')[0]}") for each in wheels)
                   for name in ("numpy", "openvino", "nvidia_pytriton"))  # fmt: skip
        assert (versions.get("robins") == "1.0") == (whose == "birds")
        answers = []
        for flavour, engine in {"local": "", "cpu": OWN_ENGINE}.items():
            there = tmp_path / flavour
            serve = SERVE.format(*free_ports(3), flavour=flavour, picture=noise)
            install = f"sh {folder}/{pack.INSTALL} {there}; cd {there}"
            output = without_a_network(f"{engine}\n{install}\n({serve})", tmp_path)
            assert not any(word in output for word in ("export:", "building", "installing what"))
            (answer,) = (line for line in output.splitlines() if line.startswith("{"))
            answers.append(json.loads(answer)["labels"])
            is_own = whose == "birds"
            assert ("birds" in output) == is_own == (answers[-1][0]["probability"] == 1)
        assert answers[0] == answers[1]
