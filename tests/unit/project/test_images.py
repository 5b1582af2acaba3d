"""What this repository assumes of NVIDIA's images, held to what the workflow `images` has noted."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.stacks.containers import MOUNTED, let_steps_read
from tests.project import ROOT

NOTED = sorted((ROOT / "docker" / "images").glob("*.json"))
DOCKERFILES = [*(ROOT / "docker").glob("*/gpu.Dockerfile")]
ENTRYPOINT = ["/opt/nvidia/nvidia_entrypoint.sh"]


def explain_mismatch(config: dict[str, Any], name: str) -> str | None:
    environment = dict(each.split("=", 1) for each in config["Env"])
    if config.get("User", "") not in ("", "root"):
        return "pip installs as root while our layers are built"
    if config["Entrypoint"] != ENTRYPOINT:
        return "the banner of its entrypoint is looked over, and nothing else comes before CMD"
    version = environment.get("TRT_VERSION", "")
    if not name.endswith("-sdk.json") and not re.match(r"\d+\.\d+\.\d+", version):
        return "plans are built and loaded by the version that TRT_VERSION names"
    return None


@pytest.mark.parametrize("noted", NOTED, ids=lambda noted: noted.stem)
def test_what_is_noted_is_as_assumed(noted: Path) -> None:
    platforms = json.loads(noted.read_text())
    config = platforms.get("linux/amd64", platforms)["config"]
    assert explain_mismatch(config, noted.name) is None


def test_versions_of_tensorrt_are_one() -> None:
    """A plan is loaded by the version that built it alone."""
    texts = [noted.read_text() for noted in NOTED if "sdk" not in noted.name]
    versions = {
        found for text in texts for found in re.findall(r"TRT_VERSION=(\d+\.\d+\.\d+)", text)
    }
    assert len(versions) <= 1


def test_what_is_not_as_assumed_is_named() -> None:
    good = {"Env": ["PATH=/bin", "TRT_VERSION=11.1.0.106"], "Entrypoint": ENTRYPOINT}
    assert explain_mismatch(good, "a.json") is None
    assert "TRT_VERSION" in (explain_mismatch({**good, "Env": []}, "a.json") or "")
    assert explain_mismatch({**good, "Env": []}, "a-py3-sdk.json") is None
    assert "root" in (explain_mismatch({**good, "User": "1000"}, "a.json") or "")
    assert "entrypoint" in (explain_mismatch({**good, "Entrypoint": None}, "a.json") or "")


def test_the_workflow_asks_for_the_images_that_are_used() -> None:
    used = {re.search(r"nvcr\.io/nvidia/(\S+)", file.read_text()) for file in DOCKERFILES}
    workflow = (ROOT / ".github" / "workflows" / "images.yml").read_text()
    for found in used:
        assert found and found[1].replace("${TRITON_TAG}", '"$tag"') in workflow


def test_each_stage_is_named_as_an_image_may_be() -> None:
    """Newer builders look for an image of that name: Docker 28.5 refuses `export-`, 20.10 not."""
    for file in (ROOT / "docker" / "Dockerfile", *DOCKERFILES):
        for name in re.findall(r"^FROM \S+ AS (\S+)", file.read_text(), re.MULTILINE):
            assert re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", name), (file, name)


def test_the_images_user_can_read_what_a_umask_hides() -> None:
    """Of a clone that only its owner reads (umask 077). The rest is for root, who builds."""
    roots = r" /requirements/|docker/pip-install|docker/steps/as-owner /usr"
    for file in (ROOT / "docker" / "Dockerfile", ROOT / "docker" / "server" / "gpu.Dockerfile"):
        lines = file.read_text().replace("\\\n", "").splitlines()
        for words in (line.removeprefix("COPY ") for line in lines if line.startswith("COPY ")):
            assert words.startswith(("--chmod=755 ", "--from=")) or re.search(roots, words), words


def test_no_address_of_an_index_stays_in_an_image() -> None:
    """It may have a password, and arguments of builds are in an image's history."""
    for file in (ROOT / "docker" / "Dockerfile", *DOCKERFILES):
        assert not re.search(r"^ARG \w*(INDEX|URL)", file.read_text(), re.MULTILINE), file


def run_init(folder: Path, **stand_ins: str) -> subprocess.CompletedProcess[str]:
    """With programs that say this and do nothing."""
    for name, says in stand_ins.items():
        (stand_in := folder / name).write_text(f"#!/bin/sh\necho {says}\n")
        stand_in.chmod(0o755)
    command: list[str | Path] = ["sh", ROOT / "docker/steps/init.sh"]
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True)


@pytest.mark.parametrize(("line", "owner"), [("0 1001 1", "0"), ("", "65532")])
def test_a_rootless_engines_root_is_the_owner(line: str, owner: str, tmp_path: Path) -> None:
    for name in (*MOUNTED, "build"):
        (tmp_path / name).mkdir()
    done = run_init(tmp_path, chown="$@", python3="", awk=line, stat="0")
    assert f"{owner}:65532 build/key/admin.key\n" in done.stdout


def test_an_owner_who_is_another_in_containers_is_refused(tmp_path: Path) -> None:
    for name in (*MOUNTED, "build"):
        (tmp_path / name).mkdir()
    refused = run_init(tmp_path, chown="", python3="", awk="", stat="65534")
    assert refused.returncode == 1 and "who cannot own build/" in refused.stderr
    assert not list((tmp_path / "build").iterdir())


def test_the_server_can_enter_what_a_umask_hides(tmp_path: Path) -> None:
    """make places TLS_CERT before the first step."""
    secret = [tmp_path / "build" / name for name in ("key", "tls")]
    for folder in (*(tmp_path / name for name in MOUNTED), *secret):
        folder.mkdir(parents=True)
    (compiled := tmp_path / "scripts" / "__pycache__").mkdir()  # by make, meanwhile
    for folder in (*secret, compiled):
        folder.chmod(0o700)
    assert run_init(tmp_path, chown="", python3="", awk="").returncode == 0
    assert {folder.stat().st_mode & 0o777 for folder in secret} == {0o755}


def test_steps_can_read_what_a_umask_hides(tmp_path: Path) -> None:
    mounted = re.findall(r"- \./(\w+):/bundle/\w+:ro", (ROOT / "compose.yaml").read_text())
    assert mounted == MOUNTED
    assert f"set -- {' '.join(MOUNTED)}\n" in (ROOT / "docker/steps/init.sh").read_text()
    for name in MOUNTED:
        (tmp_path / name).mkdir(mode=0o700)
    begins = tmp_path / "docker" / "unless-own"
    begins.touch(0o700)
    let_steps_read(tmp_path)
    assert begins.stat().st_mode & 0o777 == 0o744
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in MOUNTED} == {0o755}
