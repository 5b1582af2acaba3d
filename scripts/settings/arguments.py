"""What single commands take behind them, beside the settings: make classify IMG=photo.jpg TOP=3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from scripts.settings.setting import (
    Setting,
    flag,
    number,
    number_or_none,
    of_class,
    path,
    text,
    whole,
    whole_or_none,
)


class Arguments:
    remedy = "fix it here"

    model = text("", "The pipeline that is meant. Empty: the first.")
    img = text("", "A picture, several in quotes, a folder, or a URL.")
    in_ = text("", "The folder whose pictures are compared.")
    text_ = text("", "The text to be judged.")
    top = whole(5, "How many labels, or pictures, are shown.")
    json = flag("One line of JSON for each answer.")

    triton_model = text("", "One model, as Triton knows it.")

    name = text("", "What a new pipeline is called.")
    onnx = path("A network of one's own.")
    labels = path("Its labels, one a line.")

    canary = whole_or_none("Percent of the requests that try the candidate first.", most=99)
    anyway = flag("Though the candidate is untrained, or hardly agrees with the live version.")
    version = whole_or_none("The version to switch to.")

    images = text("", "A folder of pictures to measure with.")
    quick = flag("What a minute allows.")
    compare = path("The results.json of an earlier run.")
    textbook = flag("The textbook recipe too.")
    only = text("", "Some of the contenders.")
    latency_ms = number_or_none("The longest that 95% of the answers may take.")
    minutes = number("5", "How long to search.")

    stop = flag("Stop the server that is up for as long as it takes.")

    add = text("", "The client that gets a key.")
    rate = number_or_none("How many requests a second it may send.")
    revoke = text("", "The client whose key is revoked.")

    args = text("", "What pytest is given.")

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values


ALL: dict[str, Setting[Any]] = {each.name: each for each in of_class(Arguments)}


def load(said: Mapping[str, str] = os.environ) -> Arguments:
    return Arguments(
        {name: said.get(name, "").strip() or each.default for name, each in ALL.items()}
    )
