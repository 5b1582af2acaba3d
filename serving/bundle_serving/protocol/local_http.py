"""Our own requests to HTTP servers behind sockets: Triton's metrics, Envoy's admin."""

import asyncio
from pathlib import Path

TIMEOUT_S = 5


async def ask(socket: Path, method: str, path: str) -> bytes:
    """The answer's body; raises OSError if there is none."""
    question = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_unix_connection(socket)
        try:
            writer.write(f"{question}Content-Length: 0\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
    if not answer:  # its program has just ended
        raise ConnectionResetError(f"{socket} gives no answer")
    head, _, body = answer.partition(b"\r\n\r\n")
    return join_chunks(body) if b"transfer-encoding: chunked" in head.lower() else body


def join_chunks(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, body = body.partition(b"\r\n")
        pieces.append(body[: int(size, 16)])
        body = body[int(size, 16) + len(b"\r\n") :]
    return b"".join(pieces)
