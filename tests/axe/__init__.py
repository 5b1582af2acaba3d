"""axe-core, which finds what people with disabilities cannot use on a page."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.base import files
from tests.project import ROOT
from tests.screens.chromium import Tab

HERE = Path(__file__).parent
LOCK = "package-lock.json"
INSTALLED = ROOT / ".venv" / "axe"


def script() -> str:
    """The npm package, in the version that is pinned here; fetched once for each environment."""
    folder, lock = INSTALLED, (HERE / LOCK).read_bytes()
    if not (folder / LOCK).exists() or (folder / LOCK).read_bytes() != lock:
        if not shutil.which("npm"):
            pytest.skip("no npm here")
        with files.whole_folder(folder) as draft:
            for name in ("package.json", LOCK):
                shutil.copy(HERE / name, draft)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=draft, check=True, capture_output=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def violations(tab: Tab, axe: str) -> list[str]:
    tab.run(f"{axe};0")
    found = tab.run("axe.run().then(results => JSON.stringify(results.violations))")
    return [
        f"{each['id']}: {node['html']} {node.get('failureSummary', '')}"
        for each in json.loads(found)
        for node in each["nodes"]
    ]
