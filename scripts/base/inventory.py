"""Writes what an image carries: sbom.json (CycloneDX) and NOTICE, the licence of each package.
Stdlib only; image builds run this file alone:

    python3 inventory.py FOLDER NAME VERSION

Python packages are those that can be imported, Debian's those that dpkg knows. The files do not
depend on when they are written.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

Component = dict[str, Any]  # as CycloneDX has it


def main() -> int:
    folder, name, version = sys.argv[1:]
    write(Path(folder), name, version, [*python(sys.path), *debian()])
    return 0


def write(folder: Path, name: str, version: str, components: list[Component]) -> None:
    components.sort(key=lambda each: str(each["bom-ref"]))
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": components,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sbom.json").write_text(json.dumps(sbom, indent=1) + "\n")
    (folder / "NOTICE").write_text(notice(name, version, components))


def python(where: list[str]) -> list[Component]:
    found = {each.metadata["Name"].lower(): each for each in distributions(path=where)}
    return [
        component(f"pkg:pypi/{re.sub(r'[-_.]+', '-', name)}", each.metadata["Name"], each.version,
                  licence_of(each), texts_of(each))
        for name, each in found.items()
    ]  # fmt: skip


def licence_of(each: Distribution) -> str:
    about = each.metadata
    declared = [about[name] for name in ("License-Expression", "License") if name in about]
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    short = [line for line in declared if line and "\n" not in line and len(line) < 100]
    return (short or classified or ["see its licence file"])[0]


def texts_of(each: Distribution) -> str:
    """Where the licence's text lies."""
    names = (file for file in each.files or () if re.search("(?i)licen[cs]e|copying", file.name))
    first = next(names, None)
    return str(each.locate_file(first)) if first else ""


def debian() -> list[Component]:
    if not shutil.which("dpkg-query"):
        return []
    form = "${Package}\\t${Version}\\t${source:Package}\\t${source:Version}\\t${Architecture}\\n"
    output = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True).stdout
    found = []
    for line in output.splitlines():
        name, version, source, source_version, architecture = line.split("\t")
        text = Path("/usr/share/doc") / name / "copyright"
        purl = f"pkg:deb/debian/{name}"
        each = component(purl, name, version, licences_in(text), str(text) if text.exists() else "")
        each["purl"] += f"?arch={architecture}"
        each["properties"] += [{"name": "debian:source", "value": f"{source} {source_version}"}]
        found.append(each)
    return found


def licences_in(text: Path) -> str:
    try:
        licences = re.findall(r"^License: *(\S.*)$", text.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        licences = []
    return ", ".join(sorted({*licences})) or "see its copyright file"


def component(purl: str, name: str, version: str, licence: str, text: str) -> Component:
    return {
        "type": "library",
        "bom-ref": f"{purl}@{version}",
        "name": name,
        "version": version,
        "purl": f"{purl}@{version}",
        "licenses": [{"license": {"name": licence}}],
        "properties": [{"name": "licence:text", "value": text}] if text else [],
    }


def notice(name: str, version: str, components: list[Component]) -> str:
    lines = [f"{name} {version} is licensed under Apache-2.0, and contains:", ""]
    for each in components:
        licence = each["licenses"][0]["license"]["name"]
        text = next((p["value"] for p in each["properties"] if p["name"] == "licence:text"), "")
        lines.append(
            f"{each['name']} {each['version']}: {licence}" + (f" ({text})" if text else "")
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
