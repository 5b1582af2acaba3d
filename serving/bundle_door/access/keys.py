"""API keys: who may ask, and how often.

Their file (key_file.py) is read again when it changes, so that a key is added or revoked without a
restart.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bundle_door.access.key_file import ADMIN, BadKeys, Client, hash_key, read
from bundle_door.answers import Answer, Refused
from bundle_door.front.envoy_process import Line
from bundle_door.front.messages import INFER
from bundle_door.requests import CLIENT_HEADER, Note, Request
from bundle_serving.process.guard import is_pass
from bundle_serving.process.server_log import log
from bundle_serving.protocol.kserve import pb

SCHEME = "bearer "


class Bucket:
    """Fills with a token every 1 / `per_second` s, up to a second's worth, and one at least."""

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._most = max(per_second, 1.0)
        self._tokens = self._most
        self._at = now

    def wait_s(self, now: float) -> float:
        """0 where a token was there, which is taken; else how long until one will be."""
        self._tokens = min(self._most, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self.per_second
        self._tokens -= 1
        return 0.0

    def charge(self, tokens: int) -> None:
        """For what turned out to be more than one; a debt is waited for by what comes next."""
        self._tokens -= tokens


class Charged(Protocol):
    def charge(self, client: str, more: int) -> None:
        """For the pictures or rows of a request beyond the first, which it was let in for."""


def charge_once(keys: Charged | None, note: Note, more: int) -> None:
    """However often the request is tried."""
    if keys and more > note.charged:
        keys.charge(note.client, more - note.charged)
        note.charged = more


class Keys:
    """What Envoy asks before it lets a request pass."""

    def __init__(self, file: Path, admin_key: str | None) -> None:
        self._file = file
        self._admin_key = admin_key
        self._admin = {hash_key(admin_key): ADMIN} if admin_key else {}
        self._stamp: tuple[int, int] | None = None
        self._clients: dict[str, Client] = {}
        self._buckets: dict[str, Bucket] = {}
        # Of a client's messages that wait, one looks whether it may go on.
        self._turns = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self.requests: Counter[str] = Counter()
        # How many rows a model takes at once; 0 where the first dimension counts none.
        self.find_most_rows: Callable[[str], int] = lambda model: 0

    async def authorize(self, request: Request, named: Mapping[str, str]) -> Answer:
        try:
            client = self._client(request.headers.get("authorization", ""))
            self._check_rate(client)
        except Refused as refused:
            # Envoy makes JSON of it, or a gRPC message.
            return Answer(str(refused).encode(), refused.status, refused.headers)
        self.requests[client.name] += 1
        return Answer(headers={CLIENT_HEADER: client.name})

    async def admit(self, authorization: str) -> None:
        """A message of a stream that is open; one that comes too fast waits. A `Refused` if the key
        was revoked meanwhile."""
        async with self._turns[self._client(authorization).name]:
            while wait_s := self._wait_s(client := self._client(authorization)):
                await asyncio.sleep(wait_s)  # and it may have another rate then, or none
        self.requests[client.name] += 1

    def charge_line(self, line: Line) -> None:
        """For a batch over gRPC that Triton was asked about, whatever came of it. Envoy lets it in
        as one request, before it is read; its other rows are charged later."""
        if line.path == INFER and line.client and not line.by_envoy:
            self._charge_rows(line.client, line.model or "", int(line.rows or 1))

    def charge_message(self, authorization: str, message: bytes) -> None:
        """The same of a stream's."""
        client = self._client(authorization)
        if client.per_second is not None:
            asked = pb.ModelInferRequest.FromString(message)
            shape = asked.inputs[0].shape if asked.inputs else []
            self._charge_rows(client.name, asked.model_name, shape[0] if shape else 1)

    def _charge_rows(self, client: str, model: str, rows: int) -> None:
        """A batch of more than it takes, of whatever size, is refused, and costs as much as one."""
        if (rows := min(rows, self.find_most_rows(model))) > 1:
            self.charge(client, rows - 1)

    def charge(self, client: str, more: int) -> None:
        if bucket := self._buckets.get(client):
            bucket.charge(more)

    def _client(self, authorization: str) -> Client:
        self._read_again()
        if authorization[: len(SCHEME)].lower() == SCHEME:
            key = authorization[len(SCHEME) :].strip()
            # By its hash: how long the search takes says nothing of the key.
            if client := self._clients.get(hash_key(key)):
                return client
            if self._admin_key and is_pass(self._admin_key, key):
                return ADMIN
        raise Refused(
            401,
            "no valid API key; send the header 'Authorization: Bearer KEY'",
            {"www-authenticate": "Bearer"},
        )

    def _check_rate(self, client: Client) -> None:
        if wait_s := self._wait_s(client):
            raise Refused(
                429,
                f"{client.name} may send {client.per_second:g} requests a second, of which each"
                " picture or row counts as one; wait",
                {"retry-after": str(int(wait_s) + 1), CLIENT_HEADER: client.name},
            )

    def _wait_s(self, client: Client) -> float:
        if client.per_second is None:
            return 0.0
        now = time.monotonic()
        return self._buckets.setdefault(client.name, Bucket(client.per_second, now)).wait_s(now)

    def _read_again(self) -> None:
        try:
            found = self._file.stat()
            stamp = (found.st_ctime_ns, found.st_ino)
            if stamp == self._stamp:
                return
            clients = read(self._file)
        except FileNotFoundError:
            clients, stamp = {}, None
        except BadKeys as fault:
            # Leaves the door as it was: closed to keys that are new.
            self._stamp = stamp
            log("door", f"API keys are not read again: {fault}")
            return
        except OSError as fault:  # passes: the next request reads it, and who was revoked stays out
            log("door", f"API keys cannot be read now: {fault}")
            return
        self._clients, self._stamp = clients | self._admin, stamp
        # Of who was revoked nothing is told: a key for each job would be a line for ever.
        for name in self.requests.keys() - {client.name for client in self._clients.values()}:
            del self.requests[name]
        rates = {(client.name, client.per_second) for client in clients.values()}
        self._buckets = {
            name: bucket
            for name, bucket in self._buckets.items()
            if (name, bucket.per_second) in rates
        }
