"""Files out of a form, as `curl -F file=@one.jpg -F file=@two.jpg` sends them.

python-multipart reads the headers of a part. The parts themselves are found here: it looks at each
byte in Python, which of a form made for that takes seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from python_multipart.multipart import parse_options_header

from bundle_door.answers import Refused
from bundle_door.limits import MOST_FIELD_BYTES, MOST_FIELDS, MOST_PART_HEADERS

# RFC 2046, 5.1.1
LONGEST_BOUNDARY = 70
# Searched at a time, while others are served.
STEP = 1 << 20
NAME = b"content-disposition:"


@dataclass(frozen=True)
class File:
    # Empty if it has none.
    name: str
    content: Sequence[bytes | memoryview]


async def files(chunks: Sequence[bytes], content_type: str, limit: int) -> list[File]:
    """The files of a form, at most `limit` of them. A part without a file name is a field, and is
    ignored."""
    _, options = parse_options_header(content_type[:MOST_PART_HEADERS])
    if not (boundary := options.get(b"boundary")):
        raise Refused(400, "the form's Content-Type has no boundary; let the client set it")
    if len(boundary) > LONGEST_BOUNDARY:
        raise explain_damage(f"its boundary has more than {LONGEST_BOUNDARY} characters")
    found: list[File] = []
    fields = 0
    async for headers, content in parts(b"".join([b"\r\n", *chunks]), b"\r\n--" + boundary):
        if (name := file_name(headers)) is not None:
            if len(found) == limit:
                raise Refused(413, f"more than {limit} files in a request; send fewer at once")
            found.append(File(name, [content]))
        elif (fields := fields + 1) > MOST_FIELDS or len(content) > MOST_FIELD_BYTES:
            raise Refused(
                413,
                f"more than {MOST_FIELDS} fields in a form, or one of more than {MOST_FIELD_BYTES}"
                " bytes; send files alone",
            )
    return found


async def parts(body: bytes, delimiter: bytes) -> AsyncIterator[tuple[bytes, memoryview]]:
    """Headers and content of each part between two delimiters."""
    view = memoryview(body)
    at = await position(body, delimiter, 0)
    while True:
        line = at + len(delimiter)
        if body.startswith(b"--", line):
            return
        if not body.startswith(b"\r\n", line):
            raise explain_damage("its boundary is in a part, or followed by something")
        if (blank := body.find(b"\r\n\r\n", line, line + MOST_PART_HEADERS)) < 0:
            raise explain_damage(f"a part's headers do not end within {MOST_PART_HEADERS} bytes")
        # What is empty ends with the blank line's own end.
        at = await position(body, delimiter, blank + 2)
        yield body[line:blank], view[blank + 4 : at]


async def position(body: bytes, what: bytes, start: int) -> int:
    for begin in range(start, len(body), STEP):
        if (at := body.find(what, begin, begin + STEP + len(what))) >= 0:
            return at
        await asyncio.sleep(0)
    raise explain_damage("it has no end")


def file_name(headers: bytes) -> str | None:
    for line in headers.split(b"\r\n"):
        if line.lower().startswith(NAME):
            _, options = parse_options_header(line[len(NAME) :])
            if (name := options.get(b"filename")) is not None:
                return name.decode(errors="replace")
    return None


def explain_damage(why: str) -> Refused:
    return Refused(400, f"the form cannot be read: {why}; let the client write it: curl -F")
