"""Makes a release, step by step; .github/workflows/release.yml runs the same steps on a tag.

    python3 .ci/release.py packages check notes

    packages    wheel and sdist of the client and of the command line
    check       whether an index would take them, and whether a tag is the version's
    notes       notes.md: what CHANGELOG.md says of the version
    images      built for this machine's processor, pushed to REGISTRY as 1.1.0-x86_64 and the like:
                images-x86_64.txt
    sbom        sbom-server-x86_64.json and the like: what each image carries
    join        one name for the images of all processors that images-*.txt list
    provenance  provenance.json: of which commit all of it was made, by whom, from which packages
    sign        SHA256SUMS of all of it, and its signature by the ssh key SIGNING_KEY
    index       index/: the packages where pip finds them
    install     from there, in installed/; then it is asked for its version

Settings are variables of the environment: REGISTRY=registry.example/team, the key
SIGNING_KEY=~/.ssh/release, and the folder OUT=build/release. Stdlib only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT") or ROOT / "build" / "release").resolve()
PYTHON = str(ROOT / ".venv" / "bin" / "python")
PACKAGES = {"triton-bundle": ROOT, "triton-bundle-client": ROOT / "client"}
SUMS = OUT / "SHA256SUMS"
SIGNED = "images-*.txt", "sbom-*.json", "notes.md", "provenance.json"
IN_IMAGE = "docker", "run", "--rm", "-i", "--network", "none", "--entrypoint", "sh"


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown or not names:
        sys.exit(f"error: no step {' '.join(unknown)}; the steps are {' '.join(STEPS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"- {name}", flush=True)
        STEPS[name]()
    return 0


def build_packages() -> None:
    if changes := read("git", "status", "--porcelain"):
        sys.exit(f"error: changes in no commit ({changes.split()[1]} …); commit or stash them")
    for file in list_packages():
        file.unlink()
    run("make", "--silent", ".venv/layers/release")
    for folder in PACKAGES.values():
        run(PYTHON, "-m", "hatchling", "build", "-d", str(OUT), cwd=folder)


def check_packages() -> None:
    tag = os.environ.get("GITHUB_REF_NAME", "")
    if tag.startswith("v") and tag != f"v{find_version()}":
        sys.exit(f"error: the tag {tag} is not v{find_version()}; change __version__, or the tag")
    run(PYTHON, "-m", "twine", "check", "--strict", *map(str, list_packages()))


def write_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(find_version())}\b.*\n([\s\S]*?)(?=^## |\Z)", text, re.M)
    if not found:
        sys.exit(f"error: CHANGELOG.md has no part '## {find_version()}'; write it")
    (OUT / "notes.md").write_text(f"{found[1].strip()}\n")


def push_images() -> None:
    # The owner of a repository may have capitals, an image's name none.
    registry = require("REGISTRY", "registry.example/team").lower()
    processor = platform.machine()
    # The version's own tag is for `join`, when the images of all processors are there.
    where = f"PUSH={registry}", f"TAG={find_version()}-{processor}"
    pushed = read("make", "images", *where, "REGISTRY=")  # built, not taken from there
    print(pushed)
    digests = re.findall(r"^- pushed: (\S+@sha256:\w+)$", pushed, re.M)
    (OUT / f"images-{processor}.txt").write_text("".join(f"{each}\n" for each in digests))


def write_sboms() -> None:
    """Of what is in the images, by what runs in them."""
    script = "cat > /tmp/inventory.py && python3 /tmp/inventory.py /tmp $0 $1 && cat /tmp/sbom.json"
    program = (ROOT / "scripts" / "base" / "inventory.py").read_text()
    for image in list_images(platform.machine()):
        name = image.partition("@")[0].rpartition("/")[2]
        said = read(*IN_IMAGE, image, "-c", script, name, find_version(), given=program)
        short = name.removeprefix("triton-bundle-")
        (OUT / f"sbom-{short}-{platform.machine()}.json").write_text(f"{said}\n")


def join_images() -> None:
    by_name: dict[str, list[str]] = {}
    for image in list_images("*"):
        name = image.partition("@")[0]
        by_name.setdefault(name, []).append(image)
        if name.endswith("-server"):  # compose.yaml's first step, for a network of the user's
            own = f"{name.removesuffix('-server')}-export-own"
            by_name.setdefault(own, []).append(image)
    if len({len(images) for images in by_name.values()}) != 1:
        sys.exit("error: images-*.txt do not list the same images; run images on each machine")
    for name, images in by_name.items():
        joined = f"{name}:{find_version()}"
        run("docker", "buildx", "imagetools", "create", "--tag", joined, *images)


def write_provenance() -> None:
    """As in-toto and SLSA have it."""
    env, pinned = os.environ, "requirements/locked/hashes.txt"
    images = (image.partition("@sha256:") for image in list_images("*"))
    source = {
        "uri": f"git+{env.get('GITHUB_SERVER_URL', 'file:')}/{env.get('GITHUB_REPOSITORY', '')}",
        "digest": {"gitCommit": read("git", "rev-parse", "HEAD")},
    }
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            *(describe(file.name, hash_of(file)) for file in list_packages()),
            *(describe(name, digest) for name, _, digest in images),
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:triton-bundle:release",
                "externalParameters": {"version": find_version()},
                "resolvedDependencies": [source, describe(pinned, hash_of(ROOT / pinned))],
            },
            "runDetails": {
                "builder": {"id": env.get("GITHUB_WORKFLOW_REF") or "urn:triton-bundle:by-hand"},
                "metadata": {"invocationId": env.get("GITHUB_RUN_ID", "")},
            },
        },
    }
    (OUT / "provenance.json").write_text(json.dumps(statement, indent=1) + "\n")


def describe(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest}}


def sign() -> None:
    key = Path(require("SIGNING_KEY", "~/.ssh/release")).expanduser()
    others = (file for each in SIGNED for file in OUT.glob(each))
    files = sorted([*list_packages(), *others])
    SUMS.write_text("".join(f"{hash_of(file)}  {file.name}\n" for file in files))
    (OUT / f"{SUMS.name}.sig").unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "file", str(SUMS))


def write_index() -> None:
    shutil.rmtree(OUT / "index", ignore_errors=True)
    for name in PACKAGES:
        folder = OUT / "index" / name
        folder.mkdir(parents=True)
        links = []
        for file in list_packages():
            if file.name.startswith(f"{name.replace('-', '_')}-{find_version()}"):
                shutil.copy2(file, folder)
                links.append(f'<a href="{file.name}#sha256={hash_of(file)}">{file.name}</a>\n')
        (folder / "index.html").write_text(f"<!DOCTYPE html>\n{''.join(links)}")


def install() -> None:
    """First what was made, from nowhere else; then what the client needs."""
    target, index = OUT / "installed", (OUT / "index").as_uri()
    run(sys.executable, "-m", "venv", "--clear", str(target))
    pip = str(target / "bin" / "pip")
    exact = [f"{name}=={find_version()}" for name in PACKAGES]
    run(pip, "--isolated", "install", "-q", "--no-deps", "--index-url", index, *exact)
    run(pip, "install", "-q", *exact)
    said = read(str(target / "bin" / "triton-bundle"), "version")
    if said != find_version():
        sys.exit(f"error: what was installed calls itself {said}; build the packages again")
    run(str(target / "bin" / "python"), "-c", "import bundle_client")


def list_packages() -> list[Path]:
    return sorted([*OUT.glob("*.whl"), *OUT.glob("*.tar.gz")])


def list_images(processor: str) -> Iterator[str]:
    for file in sorted(OUT.glob(f"images-{processor}.txt")):
        yield from file.read_text().split()


def find_version() -> str:
    text = (ROOT / "client" / "bundle_client" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.*)"', text, re.M)
    assert found
    return found[1]


def hash_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def require(name: str, example: str) -> str:
    return os.environ.get(name) or sys.exit(f"error: {name} is not set; {name}={example}")


def run(*command: str, cwd: Path = ROOT) -> None:
    if code := subprocess.run(command, cwd=cwd).returncode:
        sys.exit(code)


def read(*command: str, given: str = "") -> str:
    ran = subprocess.run(command, cwd=ROOT, input=given, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        print(ran.stdout)
        sys.exit(ran.returncode)
    return ran.stdout.strip()


STEPS: dict[str, Callable[[], None]] = {
    "packages": build_packages,
    "check": check_packages,
    "notes": write_notes,
    "images": push_images,
    "sbom": write_sboms,
    "join": join_images,
    "provenance": write_provenance,
    "sign": sign,
    "index": write_index,
    "install": install,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
