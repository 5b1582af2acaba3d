"""What is reported of the packages that are used: flaws and licences."""

import json
import re
from pathlib import Path

import numpy as np

from scripts.base import inventory
from scripts.server import known_flaws
from scripts.settings.settings import Settings
from tests.project import ROOT


def test_the_flaws_of_the_tritonservers_in_use_are_known() -> None:
    """Another pin takes another look at NVIDIA's bulletins."""
    listed = known_flaws.read_listed()["tritonserver"]
    carried = {
        name: version for each in listed.values() for name, version in each["carried_by"].items()
    }
    constraints = (ROOT / "requirements" / "constraints.txt").read_text()
    (pytriton,) = re.findall(r"^nvidia-pytriton==(\S+)", constraints, re.MULTILINE)
    assert carried == {"nvidia-pytriton": pytriton, "TRITON_TAG": Settings.triton_tag.default}


def test_the_readme_tells_the_same_flaws() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    for version, flaws in known_flaws.read_listed()["tritonserver"].items():
        short = version.rpartition(".")[0]
        assert short in readme and flaws["release"] in readme
        if flaws["fixed_later"]:
            assert f"[{flaws['fixed_later']} security flaws]" in readme
            assert f"{flaws['fixed_later']} known flaws (as of 20" in known_flaws.summary(version)
    assert "not in known_flaws.json" in known_flaws.summary("1.0.0")


def test_what_is_installed_is_listed_with_its_licence(tmp_path: Path) -> None:
    site = next((ROOT / ".venv" / "lib").glob("python*/site-packages"))
    inventory.write(tmp_path, "triton-bundle", "0.1.0", inventory.python([str(site)]))
    sbom = json.loads((tmp_path / "sbom.json").read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
    by_name = {each["name"]: each for each in sbom["components"]}
    assert by_name["numpy"]["purl"] == f"pkg:pypi/numpy@{np.__version__}"
    notice = (tmp_path / "NOTICE").read_text()
    assert re.search(r"^numpy \S+: BSD.* \(.*LICENSE.*\)$", notice, re.MULTILINE), notice


def test_licences_are_read_off_debians_files(tmp_path: Path) -> None:
    text = tmp_path / "copyright"
    text.write_text("Files: *\nLicense: GPL-2+\n\nFiles: x\nLicense: Expat\n text\n")
    assert inventory.licences_in(text) == "Expat, GPL-2+"
