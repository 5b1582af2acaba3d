"""What a folder of transformers' keeps."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from bundle_serving.networks import network_in
from bundle_serving.protocol import golden
from bundle_serving.scores import softmax
from kinds.text import classifiers, export
from kinds.text.serving.texts import TextRecipe, to_tokens
from scripts.base.errors import UserError
from scripts.intake.original import Session
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import transformers  # isort: skip

assert torchvision

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
SMALL |= {"intermediate_size": 8, "vocab_size": 9}
WORDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}


def test_an_encoder_of_texts_without_the_last_layer(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab=WORDS).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="lacks 2 weights of BertForSequenceClassification"):
        classifiers.build(str(tmp_path))


def test_a_tokenizer_of_another_network(tmp_path: Path) -> None:
    config = transformers.BertConfig(**SMALL | {"vocab_size": 3})
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab=WORDS).save_pretrained(tmp_path)
    spec = export.Classifier(str(tmp_path), 64, ("label_0", "label_1"))
    with pytest.raises(UserError, match="gives tokens that its network does not have"):
        export.export(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_is_a_program(tmp_path: Path) -> None:
    config = transformers.CanineConfig(**SMALL, num_hash_buckets=8)
    transformers.CanineForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.CanineTokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"\(CanineTokenizer\) is a program in Python"):
        classifiers.build(str(tmp_path))


def save_gpt(folder: Path) -> transformers.GPT2ForSequenceClassification:
    """Of a tokenizer that fills up with its last word, of which the network's file says nothing."""
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2, "end": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="end", unk_token="?"
    ).save_pretrained(folder)
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=1, vocab_size=4, n_positions=64, eos_token_id=3, bos_token_id=3
    )
    torch.manual_seed(0)
    network = transformers.GPT2ForSequenceClassification(config).eval()
    for each in network.parameters():
        torch.nn.init.normal_(each, std=0.5)
    network.save_pretrained(folder)
    return network


def test_a_network_that_reads_the_last_token(tmp_path: Path) -> None:
    """Not of what a text is filled up with."""
    original = save_gpt(tmp_path / "gpt")
    spec = export.Classifier(str(tmp_path / "gpt"), 64, ("label_0", "label_1"))
    export.export(spec, tmp_path / "out")
    tokenizer = TextRecipe(".", "", 64).tokenizer(tmp_path / "out")
    tokens = to_tokens(["a b b a a"], tokenizer)
    assert tokens["INPUT_IDS"].tolist() == [[0, 1, 1, 0, 0, 3, 3, 3]]
    served = Session(network_in(tmp_path / "out"), "it").run(None, tokens)[0]
    with torch.inference_mode():
        expected = original(input_ids=torch.tensor([[0, 1, 1, 0, 0]])).logits.numpy()
    assert np.abs(softmax(served) - softmax(expected)).max() < 0.001


def test_known_answers_are_of_texts_with_their_prefix(tmp_path: Path) -> None:
    original = save_gpt(tmp_path / "gpt")
    spec = export.Classifier(str(tmp_path / "gpt"), 64, ("label_0", "label_1"), task_prefix="b a ")
    export.export(spec, tmp_path / "out")
    assert spec.identity()["task_prefix"] == "b a "
    text = golden.load(tmp_path / "out" / "golden.npz")[0]["QUERY"].item().decode()
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    tokenizer.no_padding()
    with torch.inference_mode():
        ids = torch.tensor([tokenizer.encode(f"b a {text}").ids])
        expected = original(input_ids=ids).logits.numpy()
    kept = np.load(tmp_path / "out" / "golden.npz")["scores"]
    assert np.abs(kept[:1] - expected).max() < 0.001


def test_a_network_that_reads_what_texts_are_filled_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_gpt(tmp_path / "gpt")
    monkeypatch.setattr(classifiers, "_fill_as_trained", lambda known, _: known.backend_tokenizer)
    spec = export.Classifier(str(tmp_path / "gpt"), 64, ("label_0", "label_1"))
    config = tmp_path / "gpt" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pad_token_id": 3}))
    with pytest.raises(UserError, match="reads what texts are filled up with"):
        export.export(spec, tmp_path / "out")


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        ("multi_label_classification", "do not exclude each other"),
        ("regression", "gives values, not classes"),
    ],
)
def test_what_has_no_single_right_label(problem: str, cause: str, tmp_path: Path) -> None:
    config = transformers.BertConfig(**SMALL, problem_type=problem)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab=WORDS).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=cause):
        classifiers.build(str(tmp_path))
