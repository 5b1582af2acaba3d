"""What a balancer does beside Envoy."""

import asyncio
import threading
import urllib.request
from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_door.access import certificate
from bundle_door.balancer import PORTS, tell_servers
from bundle_door.front import envoy
from bundle_door.limits import Limits
from bundle_serving.address import Address
from bundle_serving.process.exposure import Exposure, compute_digest
from bundle_serving.protocol import local_http


def test_servers_are_told_though_envoy_did_not_answer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes | Exception] = [TimeoutError(), b"http::10.0.0.2:8000::hostname::a\n"]
    told = threading.Event()

    async def ask(*_: object) -> bytes:
        answer = answers.pop(0) if answers else b""
        if isinstance(answer, Exception):
            raise answer
        return answer

    def take(server: Address, question: urllib.request.Request, _: float) -> Mock:
        assert question.full_url.startswith("http://10.0.0.2:8000/")
        told.set()
        return Mock()

    async def check() -> None:
        telling = asyncio.create_task(tell_servers(Path(), Exposure(), "name"))
        assert await asyncio.to_thread(told.wait, 10)
        telling.cancel()

    monkeypatch.setattr("bundle_door.balancer.TELL_S", 0.01)
    monkeypatch.setattr(local_http, "ask", ask)
    monkeypatch.setattr(Address, "open", take)
    asyncio.run(check())


def test_servers_may_show_the_certificate_before_as_well(tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    exposure = Exposure(bind="0.0.0.0", tls_folder=tmp_path)
    shown, before = compute_digest(tmp_path / "cert.pem"), "0" * 64
    made = envoy.build_balancer(
        "tasks.server", PORTS, "0.0.0.0", tmp_path, Limits(), exposure, "it", [shown, before]
    )
    sockets = [each.get("transport_socket") for each in made["static_resources"]["clusters"]]
    (http, grpc) = (each["typed_config"]["common_tls_context"] for each in sockets if each)
    assert http["validation_context"] == {"verify_certificate_hash": [shown, before]}
    assert http == grpc
