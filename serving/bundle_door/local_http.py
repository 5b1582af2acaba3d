"""Our own requests to HTTP servers behind sockets: Triton's metrics, Envoy's admin."""

from __future__ import annotations

import asyncio
from pathlib import Path

TIMEOUT_S = 5


async def ask(socket: Path, method: str, path: str) -> bytes:
    """The answer's body; raises OSError or TimeoutError if there is none."""
    question = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            writer.write(f"{question}Content-Length: 0\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
    return answer.partition(b"\r\n\r\n")[2]
