"""HTTP answers, and refusals with their cause."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

JSON = {"content-type": "application/json"}
RETRY_SOON = {"retry-after": "1"}


@dataclass(slots=True)
class Answer:
    """A response over HTTP."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether all that was asked has an answer: of several pictures, one may have an error.
    is_whole: bool = True


class Refused(Exception):
    """The request is refused; the message gives the cause and, if there is one, the remedy."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}

    def answer(self) -> Answer:
        return as_json({"error": str(self)}, self.status, self.headers)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(msgspec.json.encode(value), status, {**JSON, **(headers or {})})
