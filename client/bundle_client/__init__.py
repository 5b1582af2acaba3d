"""Ask a triton-bundle server what is in a picture, a text or a sound.

    from bundle_client import Client

    with Client(url="localhost:8000") as client:
        for label in client.classify("mug.jpg", top=3).labels:
            print(label.label, label.probability)
        for result in client.classify_many("photos/", concurrency=8):
            print(result.source, result.error or result.labels[0].label)
        for judged in client.sentiment("What a day!", "Never again."):
            print(judged.text, judged.label, judged.score)
        for box in client.detect("street.jpg").boxes:
            print(box.label, box.score, box.left, box.top, box.right, box.bottom)
        for label in client.hear("bell.wav").labels:
            print(label.label, label.probability)
    with Client(url="localhost:8001", protocol="grpc") as client:
        for watched in client.watch(frames):
            print(watched.number, watched.labels[0].label)
        for area in client.segment("street.jpg").areas:
            print(area.label, area.share)
    with Client(url="localhost:8010") as client:
        print(client.embed("mug.jpg").vector @ client.embed("cup.jpg").vector)

`AsyncClient` is the same, of pictures and videos, with `await` and `async for`.
"""

from importlib import import_module

__version__ = "1.7.0"  # compose.yaml and compose.gpu.yaml say it too, on the images

# Read by type checkers; typing itself would take longer to import than all of this.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .answers import Area, Box, Detected, Embedding, Label, Result, Segmented, Sentiment
    from .client import Client
    from .errors import (
        ClientError,
        KeyRefused,
        ModelUnavailable,
        NotInstalled,
        PictureRefused,
        ServerBusy,
        ServerFault,
        ServerUnreachable,
        SoundRefused,
        SourceError,
        TextRefused,
    )
    from .frames import Watched
    from .sources import Source

__all__ = [
    "Area",
    "AsyncClient",
    "Box",
    "Client",
    "ClientError",
    "Detected",
    "Embedding",
    "KeyRefused",
    "Label",
    "ModelUnavailable",
    "NotInstalled",
    "PictureRefused",
    "Result",
    "Segmented",
    "Sentiment",
    "ServerBusy",
    "ServerFault",
    "ServerUnreachable",
    "SoundRefused",
    "Source",
    "SourceError",
    "TextRefused",
    "Watched",
]

# Imported at first use: a synchronous program can do without asyncio, and the command line is
# ready for Ctrl-C before anything large is imported.
HOMES = {
    "Area": "answers",
    "AsyncClient": "aio",
    "Box": "answers",
    "Client": "client",
    "Detected": "answers",
    "Embedding": "answers",
    "Label": "answers",
    "Result": "answers",
    "Segmented": "answers",
    "Sentiment": "answers",
    "Source": "sources",
    "Watched": "frames",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOMES.get(name, 'errors')}", __name__), name)
