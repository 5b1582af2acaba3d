"""What its command shows: tests/shown/every.py."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bundle_client import Sentiment
from kinds.text.recipe import Text


def sentiment() -> None:
    answers = [Sentiment("What a day!", "positive", 0.98765)]
    client = SimpleNamespace(sentiment=lambda *_, **__: answers)
    recipe: Any = SimpleNamespace(ensemble="sentiment_ensemble")
    server: Any = SimpleNamespace(known={})
    with patch("bundle_client.Client", lambda **_: nullcontext(client)):
        Text.ask(recipe, server, ["What a day!"], {})


SHOWN = {"sentiment": sentiment}
