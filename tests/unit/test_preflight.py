"""What is refused before anything that runs is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle_door import certificate
from bundle_serving.exposure import CERTIFICATE, PRIVATE_KEY
from scripts.base.errors import UserError
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import certificates, exposure


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exposure, "FOLDER", tmp_path / "tls")
    for name in ("one", "other"):
        certificate.ensure(tmp_path / name, [])
    return tmp_path


def placed(cert: Path, key: Path) -> None:
    given = {"TLS_CERT": str(cert), "TLS_KEY": str(key)}
    certificates.place(Settings(DEFAULTS | given, given))


def test_a_certificate_is_placed_with_its_own_key_alone(made: Path) -> None:
    cert, key = made / "one" / CERTIFICATE, made / "one" / PRIVATE_KEY
    placed(cert, key)
    assert (exposure.FOLDER / PRIVATE_KEY).read_text() == key.read_text()
    for wrong in (made / "other" / PRIVATE_KEY, cert):
        with pytest.raises(UserError, match="no certificate with its key"):
            placed(cert, wrong)
    spoilt = made / "spoilt.pem"
    spoilt.write_text(cert.read_text().replace("A", "B"))
    with pytest.raises(UserError, match="no certificate with its key"):
        placed(spoilt, key)
    assert (exposure.FOLDER / CERTIFICATE).read_text() == cert.read_text()
