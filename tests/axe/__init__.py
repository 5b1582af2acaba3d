"""axe-core, which finds what people with disabilities cannot use on a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.chromium import Tab

HERE = Path(__file__).parent


def script(folder: Path) -> str:
    """The npm package, in the version that is pinned here."""
    if not shutil.which("npm"):
        pytest.skip("no npm here")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def violations(tab: Tab, axe: str) -> list[str]:
    tab.run(f"{axe};0")
    found = tab.run("axe.run().then(results => JSON.stringify(results.violations))")
    return [
        f"{each['id']}: {node['html']} {node.get('failureSummary', '')}"
        for each in json.loads(found)
        for node in each["nodes"]
    ]
