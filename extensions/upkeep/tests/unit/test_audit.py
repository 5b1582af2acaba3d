"""What OSV is asked, and of which packages."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from extensions.upkeep import audit
from extensions.upkeep.audit import Package
from scripts.base import inventory
from tests.project import ROOT


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV's documentation has it."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        known = {("PyPI", "jinja2", "3.1.2"): ["GHSA-h5c8-rqwp-cp95", "CVE-2024-22195"]}
        results: list[dict[str, object]] = []
        for query in asked:
            package = query["package"]
            ids = known.get((package["ecosystem"], package["name"], query["version"]), [])
            given = [{"id": each} for each in ids]
            if "page_token" in query:
                results.append({"vulns": given[1:]})
            elif given:  # by pages
                results.append({"vulns": given[:1], "next_page_token": "more"})
            else:
                results.append({})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": results}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def osv() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Osv)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/querybatch"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_package_is_asked_about(
    osv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "AT_ONCE", 100)  # more than one question
    old = Package("PyPI", "jinja2", "3.1.2", ("tools",))
    packages = [*audit.of_layers(), old]
    answer = audit.ask(packages, osv)
    assert len(answer.flaws) == len({each.title for each in packages}) > 150
    flawed = {name: flaws for name, flaws in answer.flaws.items() if flaws}
    assert flawed == {"jinja2 3.1.2": ["CVE-2024-22195", "GHSA-h5c8-rqwp-cp95"]}
    audit.keep(answer, tmp_path / "audit.json")
    assert audit.read_kept(tmp_path / "audit.json") == answer
    assert answer.lacking([old, Package("PyPI", "jinja2", "3.1.3", ())]) == 1
    assert audit.read_kept(tmp_path / "none") is None


def test_what_is_installed_is_asked_about(tmp_path: Path) -> None:
    site = next((ROOT / ".venv" / "lib").glob("python*/site-packages"))
    inventory.write(tmp_path, "triton-bundle", "0.1.0", inventory.python([str(site)]))
    sbom = (tmp_path / "sbom.json").read_text()
    assert Package("PyPI", "numpy", np.__version__, ("image",)) in audit.of_sbom(sbom, "image")


def test_debians_packages_are_listed_by_their_sources() -> None:
    each = inventory.component("pkg:deb/debian/libc6", "libc6", "2.36-9", "LGPL-2.1", "")
    each["properties"].append({"name": "debian:source", "value": "glibc 2.36-9"})
    sbom = json.dumps({"components": [each]})
    assert audit.of_sbom(sbom, "image") == [Package("Debian:12", "glibc", "2.36-9", ("image",))]
