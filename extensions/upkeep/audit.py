"""Asks OSV, the open database of flaws, about every package that is installed or in an image."""

import json
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts.artefacts import packages
from scripts.base import files, inventory, layers, wheels
from scripts.base.paths import ROOT

OSV = "https://api.osv.dev/v1/querybatch"
AT_ONCE = 500  # it takes 1,000

# The last answer.
KEPT = ROOT / "build" / "audit.json"


@dataclass(frozen=True, order=True)
class Package:
    ecosystem: str  # as OSV calls it
    name: str
    version: str
    where: tuple[str, ...]  # the layers or images that it is in

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Answer:
    asked: str
    flaws: dict[str, list[str]]  # of every package that was asked about

    def lacking(self, packages: Iterable[Package]) -> int:
        """How many of them it says nothing of."""
        return len({each.title for each in packages} - self.flaws.keys())


def of_layers() -> list[Package]:
    """The Python packages of every layer of the environment."""
    return _gather(
        (layer, *wheels.parts(line)[:2])
        for layer in sorted({file.stem for file in layers.list_resolved()})
        for line in layers.read_locked(layer)
    )


def of_versions(versions: Path) -> list[Package]:
    """What models' programs import of their own."""
    return _gather(
        (str(folder.parent.relative_to(versions)), wheels.name_of(each["name"]), each["version"])
        for folder in packages.find_installed(versions)
        for each in inventory.python([str(folder)])
    )


def _gather(found: Iterable[tuple[str, str, str]]) -> list[Package]:
    """Of places, names and versions: each package once."""
    places: dict[tuple[str, str], list[str]] = {}
    for where, name, version in found:
        places.setdefault((name, version), []).append(where)
    return [Package("PyPI", *package, tuple(where)) for package, where in sorted(places.items())]


def of_sbom(sbom: str, image: str) -> list[Package]:
    """The packages of an image. OSV knows Debian's by their sources."""
    found = set()
    for each in json.loads(sbom)["components"]:
        source = next(
            (p["value"] for p in each["properties"] if p["name"] == "debian:source"), None
        )
        if source:
            name, _, version = source.partition(" ")
            found.add(Package("Debian:12", name, version, (image,)))
        else:
            found.add(Package("PyPI", wheels.name_of(each["name"]), each["version"], (image,)))
    return sorted(found)


def ask(packages: Iterable[Package], url: str = OSV) -> Answer:
    """Raises OSError or ValueError if there is no answer."""
    asked = list(packages)
    flaws: dict[str, list[str]] = {}
    for first in range(0, len(asked), AT_ONCE):
        some = asked[first : first + AT_ONCE]
        for package, found in zip(some, _batch(some, url), strict=True):
            flaws[package.title] = found
    return Answer(datetime.now(UTC).date().isoformat(), flaws)


def _batch(packages: list[Package], url: str) -> Iterator[list[str]]:
    queries: list[dict[str, Any]] = [
        {"package": {"name": p.name, "ecosystem": p.ecosystem}, "version": p.version}
        for p in packages
    ]
    for query, result in zip(queries, _post(queries, url), strict=True):
        found = [flaw["id"] for flaw in result.get("vulns", ())]
        while page := result.get("next_page_token"):  # where there are many, the rest
            (result,) = _post([query | {"page_token": page}], url)
            found += [flaw["id"] for flaw in result.get("vulns", ())]
        yield sorted(found)


def _post(queries: list[dict[str, Any]], url: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        url, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        results: list[dict[str, Any]] = json.load(answer)["results"]
    return results


def keep(answer: Answer, path: Path = KEPT) -> None:
    files.write(path, json.dumps(asdict(answer), indent=1) + "\n")


def read_kept(path: Path = KEPT) -> Answer | None:
    try:
        return Answer(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
