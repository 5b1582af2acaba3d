"""A folder from which the bundle is installed without any network.

bundle/        the files of this checkout
wheels/        the Python packages, for this version of Python and this processor
images/        the server's image, if containers can be run
backup.tar     the versions, their history, settings and recipes; no keys
sbom.json      what all that contains, as CycloneDX; NOTICE: with licences
SHA256SUMS     of each file
install.sh     checks them, and installs it all: sh install.sh FOLDER
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bundle_client import __version__
from extensions.upkeep import backup
from scripts import bootstrap
from scripts.artefacts import packages
from scripts.base import console, disk, files, inventory, layers, wheels
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON, REQUIREMENTS, ROOT
from scripts.repository import archive
from scripts.settings.settings import Settings
from scripts.stacks import flavour

LAYERS = {"local": ("tools", "serve"), "cpu": ("tools",)}
SUMS, INSTALL, BACKUP = "SHA256SUMS", "install.sh", "backup.tar"
NOT_OF_THE_BUNDLE = (".git", ".venv", "build", "own", ".env", ".env.before")

# The wheels take 0.3 GB, the image 0.9 GB.
PACK_MB = 1500


def flavours(settings: Settings) -> list[str]:
    """Those that it installs."""
    possible = {"cpu", "local"} & {*flavour.possible()}
    wanted = {settings.flavour} if settings.flavour else possible
    if not wanted & possible:
        raise UserError(f"a pack cannot be made for FLAVOUR={settings.flavour}", "use cpu or local")
    return sorted(wanted & possible)


def write(target: Path, settings: Settings) -> list[str]:
    """Writes all of it or nothing; returns the flavours."""
    made_for = flavours(settings)
    disk.require_room(target.parent, PACK_MB, "the pack")
    with files.whole_folder(target) as draft:
        for name in bundle_files():
            (draft / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, draft / "bundle" / name)
        needed = sorted({layer for each in made_for for layer in LAYERS[each]})
        with console.waiting(f"fetching the packages of {', '.join(needed)}"):
            fetch(draft / "wheels", needed)
        components = [*list_packages(draft)]
        if "cpu" in made_for:
            components += _save_image(draft / "images" / "server.tar", settings)
        backup.save(draft / BACKUP, __version__, "")
        unique = {each["bom-ref"]: each for each in components}
        inventory.write(draft, "triton-bundle-pack", __version__, [*unique.values()])
        shutil.copy2(Path(__file__).with_name(INSTALL), draft / INSTALL)
        files.write(draft / "python", f"{sys.version_info[0]}.{sys.version_info[1]}\n")
        write_sums(draft)
    return made_for


def bundle_files() -> list[str]:
    """Those that git knows or would take; without git, all that make did not write."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=ROOT, capture_output=True)
        if listed.returncode:  # it lists none in a folder of another user
            said = listed.stderr.decode(errors="replace").partition("\n")[0]
            cause = f"git does not list the files: {said.removeprefix('fatal: ')}"
            trust = f"git config --global --add safe.directory {shlex.quote(str(ROOT))}"
            raise UserError(cause, f"if you trust them: {trust}")
        known = [Path(name) for name in os.fsdecode(listed.stdout).split("\0") if name]
    else:
        known = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
    names = [
        str(name)
        for name in known
        if name.parts[0] not in NOT_OF_THE_BUNDLE
        and "__pycache__" not in name.parts
        and (ROOT / name).is_file()
    ]
    if why := files.why_not_below(ROOT, *names):
        raise UserError(f"{why}, and is not packed", "remove it, or have git ignore it")
    return names


def fetch(folder: Path, needed: list[str]) -> None:
    folder.mkdir()
    with wheels.write_checked(layers.read_locked(*needed), REQUIREMENTS) as (file, _):
        command: list[str | Path] = [PYTHON, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--only-binary", ":all:", "--dest", folder, "-r", file]
        fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        errors = [line for line in fetched.stderr.splitlines() if line.startswith("ERROR")]
        raise UserError(
            f"packages cannot be fetched: {(errors or ['no message'])[-1]}",
            "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy)",
        )


def _save_image(file: Path, settings: Settings) -> list[inventory.Component]:
    from scripts.stacks.containers import DockerStack

    images = DockerStack(settings).images
    images.build("server")
    file.parent.mkdir()
    with console.waiting("saving the server's image"):
        images.save("server", file)
    sbom = json.loads(images.sbom() or "{}")
    components: list[inventory.Component] = sbom.get("components", [])
    return components


def list_packages(pack: Path) -> Iterator[inventory.Component]:
    """Of the environment, and what models' programs import of their own, which is in the backup;
    a licence's place is that in the pack."""
    places = {wheel: wheel.relative_to(pack) for wheel in (pack / "wheels").iterdir()}
    for own in packages.find_installed(archive.HERE):
        places[own] = Path(BACKUP, backup.VERSIONS, own.relative_to(archive.HERE))
    for here, place in sorted(places.items()):
        for each in inventory.python([str(here)]):
            for text in each["properties"]:
                text["value"] = text["value"].replace(str(here), str(place), 1)
            yield each


def write_sums(pack: Path) -> None:
    """As sha256sum writes and checks them."""
    found = (path for path in sorted(pack.rglob("*")) if path.is_file())
    lines = (f"{files.sha256(path)}  {path.relative_to(pack)}\n" for path in found)
    files.write_bytes(pack / SUMS, os.fsencode("".join(lines)))


def unpack(pack: Path) -> None:
    """The rest of an installation, in the checkout that install.sh made."""
    bootstrap.ensure("tools")
    settings = Settings.load()
    image = pack / "images" / "server.tar"
    if image.exists() and "cpu" in flavour.possible():
        from scripts.stacks.containers import DockerStack

        with console.waiting("loading the server's image"):
            DockerStack(settings).images.load("server", image)
    found = backup.verify_backup(pack / BACKUP)
    backup.restore(found)
    console.note(f"installed: {len(found.index.files)} files of {found.index.made}; next: make up")
