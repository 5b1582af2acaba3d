"""The pipeline of texts: what becomes a classifier, and how it is answered."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest

from bundle_client import Client, TextRefused
from bundle_client.server import Protocol
from kinds.text import export, sentences
from scripts.artefacts.exporting import call, unless_it_fits
from scripts.base.errors import NoWeights, UserError
from tests.project import Project

ENSEMBLE = "sentiment_ensemble"
GIVEN = ("--longest", "512", "--labels", "negative,positive")
TEXTS = [
    "What a lovely day!",
    "I want my money back.",
    "not bad at all 😀",
    "Never again. " * 40,
    "x" * 100_000,
    "The worst meal of my life, and the rudest waiter. " * 2_000,
    "Ça va très bien, merci",
]


def test_the_classifier_knows_most_of_what_it_has_not_seen(with_sentiment: Project) -> None:
    version = with_sentiment.path / "build" / "versions" / "sentiment" / "1"
    check = json.loads((version / "onnx" / "manifest.json").read_text())["check"]
    assert check["accuracy"] >= 0.85 and check["sentences"] > 600
    assert check["max_difference"] <= 0.01


def test_the_sentences_are_balanced_and_all_different() -> None:
    read = sentences.read()
    asked = [each for each in read if each.domain != sentences.TEACHES_ONLY]
    positive = sum(each.label == "positive" for each in asked)
    assert positive * 2 == len(asked)
    assert len({each.text for each in read}) == len(read)


@cache
def by_pytorch() -> list[tuple[str, float]]:
    """Text by text, and with no padding at all."""
    import torch

    from kinds.text import classifiers

    classifier = classifiers.build("minilm")
    classifier.tokenizer.enable_truncation(512)
    found = []
    for text in TEXTS:
        ids = torch.tensor([classifier.tokenizer.encode(text).ids])
        ids = ids[ids != 0][None]
        with torch.inference_mode():
            likely = classifier.module(ids, torch.ones_like(ids)).softmax(1)[0].numpy()
        found.append((classifier.labels[int(likely.argmax())], float(likely.max())))
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_answers_match_pytorch(with_sentiment: Project, protocol: Protocol) -> None:
    """In whatever company: alone, and in one request with others."""
    with Client(getattr(with_sentiment, protocol), protocol) as client:
        in_company = client.sentiment(*TEXTS)
        alone = [client.sentiment(text)[0] for text in TEXTS]
    for answers in (in_company, alone):
        for answer, (label, score) in zip(answers, by_pytorch(), strict=True):
            assert answer.label == label, answer.text[:50]
            assert answer.score == pytest.approx(score, abs=0.01)


def test_many_at_once_of_many_lengths(with_sentiment: Project) -> None:
    asked = [each.text * (1 + n % 7) for n, each in enumerate(sentences.read()[:120])]
    with Client(with_sentiment.http) as client, ThreadPoolExecutor(16) as pool:
        alone = [client.sentiment(text)[0] for text in asked]
        crowded = list(pool.map(lambda text: client.sentiment(text)[0], asked))
    assert [each.label for each in alone] == [each.label for each in crowded]
    differences = [abs(a.score - b.score) for a, b in zip(alone, crowded, strict=True)]
    assert max(differences) < 1e-3


def test_a_fault_is_its_own_requests_alone(with_sentiment: Project) -> None:
    def judged(text: str) -> str:
        with Client(with_sentiment.grpc, "grpc") as client:
            try:
                return client.sentiment(text)[0].label
            except TextRefused as refusal:
                return refusal.cause

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(judged, ["I love it", "", "I hate it", "a" * 1_000_001] * 8))
    assert answers[0::4] == ["positive"] * 8
    assert answers[2::4] == ["negative"] * 8
    assert all("is empty" in answer for answer in answers[1::4])
    assert all("more than the limit" in answer for answer in answers[3::4])


def test_bytes_that_are_no_text_are_refused(with_sentiment: Project) -> None:
    import tritonclient.http
    from tritonclient.utils import InferenceServerException

    client = tritonclient.http.InferenceServerClient(with_sentiment.http)
    try:
        tensor = tritonclient.http.InferInput("QUERY", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[b"\xff\xfe"]], np.object_))
        with pytest.raises(InferenceServerException, match="not UTF-8") as refused:
            client.infer(ENSEMBLE, [tensor])
        assert refused.value.status() == "400"
    finally:
        client.close()


def test_a_classifier_of_a_hub_goes_the_same_way(tmp_path: Path) -> None:
    """A folder as a hub would give it, of the default's architecture and a thousandth its size."""
    from kinds.text.classifiers import ENCODER

    folder = tiny_hub_classifier(tmp_path / "tiny", ENCODER, ["NEGATIVE", "POSITIVE"])
    out = tmp_path / "made"
    for precision in ("fp32", "fp16"):
        words = ["--source", str(folder), *GIVEN, "--precision", precision, "--out", str(out)]
        call(unless_it_fits(export.export), words)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["check"]["max_difference"] <= 0.01
        assert manifest["onnx"]["labels"] == ["negative", "positive"]
    assert not has_float32_compute(out / "model.onnx")
    other = tiny_hub_classifier(tmp_path / "other", ENCODER, ["BAD", "GOOD"])
    with pytest.raises(UserError, match="labels are bad, good, and the recipe's negative"):
        call(unless_it_fits(export.export), ["--source", str(other), *GIVEN, "--out", str(out)])


def has_float32_compute(path: Path) -> bool:
    """In a graph that a strongly typed engine is built of."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True).graph
    known = (*graph.value_info, *graph.output)
    types = {each.name: each.type.tensor_type.elem_type for each in known}
    computes = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    return any(types[node.output[0]] != onnx.TensorProto.FLOAT16 for node in computes)


def tiny_hub_classifier(folder: Path, tokens: Path, labels: list[str]) -> Path:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        dim=16, hidden_dim=32, n_heads=2, n_layers=1, id2label=dict(enumerate(labels))
    )
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(tokens / name, folder / name)
    return folder


def test_a_hub_that_is_not_reached_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NoWeights, match="is not available") as refused:
        words = ["--source", "nobody/nothing", *GIVEN, "--out", str(tmp_path / "made")]
        call(unless_it_fits(export.export), words)
    assert "SENTIMENT=minilm" in refused.value.remedy


def test_it_tells_what_is_asked_in_vain(with_sentiment: Project) -> None:
    assert "no text given" in with_sentiment.make("sentiment").stderr
    done = with_sentiment.make("classify", MODEL="sentiment", IMG="photo.jpg")
    assert "IMG is given, which this pipeline does not take; give TEXT=… instead" in done.stderr
    assert "minilm" in with_sentiment.made("models", COLUMNS="200")
