"""What it brings that texts are as long as they are: throughput on texts of mixed lengths, beside
the same texts padded to the longest that the network takes. One server, one run, in turns.

    .venv/bin/python -m kinds.text.padding_benchmark [--seconds 10]

Before it: make sentiment TEXT=… (SENTIMENT=minilm).
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tritonclient.grpc

from kinds.text import sentences
from kinds.text.recipe import RECIPE_FILE, Text
from kinds.text.serving.texts import TextRecipe, to_tokens
from scripts.artefacts.exporting import start
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.server import layouts
from scripts.server.served import find_served_version
from scripts.settings.settings import Settings
from scripts.stacks.temporary import triton

AT_ONCE = 8
ROUNDS = 3
# Of most texts a sentence, of some a paragraph, of few a page.
TIMES = (1, 1, 2, 1, 6, 1, 2, 25)

Ask = Callable[[str], Any]


def main(seconds: float = 10) -> None:
    """Of each measurement."""
    with TemporaryDirectory() as folder, serve_both_ways(Path(folder)) as ways:
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, ask in ways.items():
                rates[name].append(rate(ask, seconds))
                print(f"{name:<22} {rates[name][-1]:7.1f} texts/s", flush=True)
    as_long, padded = (float(np.median(each)) for each in rates.values())
    print(f"{as_long / padded:.1f} times the throughput")


@contextmanager
def serve_both_ways(folder: Path) -> Iterator[dict[str, Ask]]:
    """The two ways to ask one server: the pipeline, and the bare network with padded tokens."""
    version = find_served_version(pipelines.find_pipeline("sentiment"))
    recipe = version.pipeline.recipe
    assert isinstance(recipe, Text)
    layouts.lay_out(version, layouts.layout(Settings.load(), CPU), folder / "models")
    tokens = version.member(recipe.models.preprocessing)
    how = TextRecipe.load(tokens / RECIPE_FILE)
    tokenizer = how.tokenizer(tokens)
    tokenizer.enable_padding(length=how.max_seq_len)
    mine = threading.local()

    with triton("the server", folder / "models", folder / "log", recipe.models.ensemble) as (_, at):

        def infer(model: str, named: dict[str, Any]) -> None:
            if not hasattr(mine, "client"):
                mine.client = tritonclient.grpc.InferenceServerClient(at)
            tensors = []
            for name, values in named.items():
                kind = "BYTES" if values.dtype == np.object_ else "INT64"
                tensors.append(tritonclient.grpc.InferInput(name, list(values.shape), kind))
                tensors[-1].set_data_from_numpy(values)
            mine.client.infer(model, tensors)

        def as_long_as_it_is(text: str) -> None:
            query = np.array([[text.encode()]], np.object_)
            infer(recipe.models.ensemble, {"QUERY": query})

        def ask_padded(text: str) -> None:
            infer(f"{recipe.models.network}_onnx", dict(to_tokens([text], tokenizer)))

        yield {"as long as they are": as_long_as_it_is, f"padded to {how.max_seq_len}": ask_padded}


def rate(ask: Ask, seconds: float) -> float:
    """Texts a second, so many at once."""
    texts = itertools.cycle(
        each.text * times
        for each, times in zip(sentences.read(), itertools.cycle(TIMES), strict=False)
    )
    take = threading.Lock()
    began = time.monotonic()

    def work(_: int) -> int:
        answered = 0
        while time.monotonic() < began + seconds:
            with take:
                text = next(texts)
            ask(text)
            answered += 1
        return answered

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answered = sum(pool.map(work, range(AT_ONCE)))
    return answered / (time.monotonic() - began)


if __name__ == "__main__":
    start(main)
