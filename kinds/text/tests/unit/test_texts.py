"""Texts become tokens, and scores become labels."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from kinds.text.export import Classifier, refuse_what_does_not_fit
from kinds.text.serving.texts import TextError, TextRecipe, to_labels, to_texts, to_tokens
from scripts.base.errors import UserError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "not", "judge", ":"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of nine words, as BERT's works."""
    tokenizer = Tokenizer(
        models.WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "recipe.yaml").write_text(
        "backbone_model_name: tokenizer\ntask_prefix: 'judge: '\nmax_seq_len: 32\n"
    )
    return tmp_path


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    return TextRecipe.load(folder / "recipe.yaml").tokenizer(folder)


def test_a_text_is_as_long_as_it_needs_in_steps_of_eight(tokenizer: Tokenizer) -> None:
    for words, tokens in ((1, 8), (6, 8), (7, 16), (14, 16), (15, 24), (30, 32), (31, 32)):
        assert to_tokens(["good " * words], tokenizer)["INPUT_IDS"].shape == (1, tokens)


def test_texts_of_one_request_are_padded_to_the_longest(tokenizer: Tokenizer) -> None:
    found = to_tokens(["good", "not good " * 8], tokenizer)
    assert {name: each.shape for name, each in found.items()} == {
        "INPUT_IDS": (2, 24),
        "ATTENTION_MASK": (2, 24),
    }
    assert all(each.dtype == np.int64 for each in found.values())
    assert found["INPUT_IDS"][0].tolist() == [2, 4, 3] + [0] * 21
    assert found["ATTENTION_MASK"].sum(axis=1).tolist() == [3, 18]


def test_what_is_too_long_is_cut_and_keeps_its_end_mark(tokenizer: Tokenizer) -> None:
    ids = to_tokens(["bad " * 25_000], tokenizer)["INPUT_IDS"]
    assert ids.shape == (1, 32) and ids[0, -1] == 3


def test_what_texts_are_filled_up_to_must_fit_too() -> None:
    classifier = SimpleNamespace(labels=["no", "yes"], longest=130)
    refuse_what_does_not_fit(classifier, Classifier("a", 128, ("no", "yes")))
    for longest in (129, 130):
        with pytest.raises(UserError, match=f"than the 136 to .*, {longest}, are") as refused:
            refuse_what_does_not_fit(classifier, Classifier("a", longest, ("no", "yes")))
        assert "to 128 at most" in refused.value.remedy


def test_the_task_stands_before_the_text(tokenizer: Tokenizer) -> None:
    ids = to_tokens(["bad"], tokenizer, "judge: ")["INPUT_IDS"]
    assert ids[0, :5].tolist() == [2, 7, 8, 5, 3]


@pytest.mark.parametrize("text", ["😀", "x" * 100_000, "Ünïcödé", "\x00", "مرحبا", "a\nb"])
def test_odd_texts_are_texts(tokenizer: Tokenizer, text: str) -> None:
    assert to_texts(np.array([[text.encode()]], np.object_)) == [text]
    assert to_tokens([text], tokenizer)["ATTENTION_MASK"].sum() >= 2


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "text 2 of 2 is empty; send a few words"),
        (b" \n\t", "text 2 of 2 is empty"),
        (b"caf\xe9", "text 2 of 2 is not UTF-8 .byte 3.; send it as UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_with_its_remedy(raw: bytes, message: str) -> None:
    with pytest.raises(TextError, match=message):
        to_texts(np.array([[b"good"], [raw]], np.object_))


@pytest.mark.parametrize(("texts", "each"), [(1, 400_001), (20, 20_001)])
def test_the_characters_of_a_request_are_bounded_together(texts: int, each: int) -> None:
    with pytest.raises(TextError, match="characters together, more than the limit of 400000"):
        to_texts(np.array([[b"a" * each]] * texts, np.object_))


def test_the_tokens_of_a_request_are_bounded_together(tokenizer: Tokenizer) -> None:
    """Each text takes as many as the longest."""
    short, long = "good", "good " * 100
    assert to_tokens([short] * 128, tokenizer)["INPUT_IDS"].shape == (128, 8)
    assert to_tokens([short] * 127 + [long], tokenizer)["INPUT_IDS"].shape == (128, 32)
    with pytest.raises(TextError, match="129 texts of this request have up to 32 tokens each"):
        to_tokens([short] * 128 + [long], tokenizer)
    tokenizer.enable_truncation(8000)
    assert to_tokens(["good " * 5000], tokenizer)["INPUT_IDS"].shape == (1, 5008)


def test_the_likeliest_label_and_how_sure_that_is() -> None:
    scores = np.array([[2.0, 0.0], [-1.0, 1.0], [0.5, 0.5]], np.float32)
    found = to_labels(scores, ["negative", "positive"])
    assert found["LABEL"].tolist() == [[b"negative"], [b"positive"], [b"negative"]]
    assert found["SCORE"].shape == (3, 1) and found["SCORE"].dtype == np.float32
    assert np.allclose(found["SCORE"].ravel(), [0.8808, 0.8808, 0.5], atol=1e-4)
