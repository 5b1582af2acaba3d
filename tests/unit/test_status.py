"""`make status` of several servers counts what all of them answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bundle_serving.address import Address
from scripts.server.triton import totals
from scripts.stacks import admin_key

STATS = {"model_stats": [{"name": name, "version": "1"} for name in ("birds", "birds_onnx")]}


@contextmanager
def door(answered: int, failed: int, ms: float) -> Iterator[Address]:
    """A server whose door has counted so many requests of a pipeline, and of its step half."""
    counted = [
        {"model": "birds", "version": "", "answered": answered, "failed": failed, "ms": ms},
        {"model": "birds_onnx", "version": "1", "answered": answered // 2, "failed": 0, "ms": ms},
    ]

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told: Any = {"/v2/answered": counted, "/v2/models/stats": STATS}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(told[self.path]).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Door) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Address("127.0.0.1", server.server_port)
        server.shutdown()


def test_all_servers_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "admin.key")
    admin_key.ensure()
    with door(90, 10, 20.0) as one, door(300, 0, 10.0) as other, door(0, 0, 0.0) as idle:
        told = [totals.read(each) for each in (one, other, idle)]
    assert [*totals.list_models("birds", told)] == [
        ("birds, main", "1", "390", "10", "12.5"),
        ("birds_onnx", "1", "195", "0", "12.3"),
    ]
