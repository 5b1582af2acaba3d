"""Files out of a form, as `curl -F file=@one.jpg -F file=@two.jpg` sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from bundle_door.answers import Refused


@dataclass(frozen=True)
class File:
    # Empty if it has none.
    name: str
    content: Sequence[bytes]


class _Collector:
    """The parser's callbacks; a part without a file name is a form field and is ignored."""

    def __init__(self, limit: int) -> None:
        self.files: list[File] = []
        self._limit = limit
        self._header = self._value = self._disposition = b""
        self._pieces: list[bytes] = []

    def on_part_begin(self) -> None:
        self._header = self._value = self._disposition = b""
        self._pieces = []

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def on_part_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"filename" not in options:
            return
        if len(self.files) >= self._limit:
            raise Refused(413, f"more than {self._limit} files in a request; send fewer at once")
        name = options[b"filename"].decode(errors="replace")
        self.files.append(File(name, self._pieces))


def files(chunks: Sequence[bytes], content_type: str, limit: int) -> list[File]:
    """The files of a form, at most `limit` of them."""
    _, options = parse_options_header(content_type)
    if not (boundary := options.get(b"boundary")):
        raise Refused(400, "the form's Content-Type has no boundary; let the client set it")
    collector = _Collector(limit)
    names = [name for name in dir(collector) if name.startswith("on_")]
    parser = MultipartParser(boundary, {name: getattr(collector, name) for name in names})  # type: ignore[arg-type]
    try:
        for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as fault:
        raise Refused(400, f"the form cannot be read: {fault}") from None
    return collector.files
