"""What a balancer does beside Envoy."""

import asyncio
import threading
import urllib.request
from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_door.balancer import tell_servers
from bundle_serving.address import Address
from bundle_serving.process.exposure import Exposure
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
