"""The last layer of a classifier, trained on labelled sentences and scored on held-out ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from kinds.text.sentences import FOLDS, Sentence, folds

LABELS = ["negative", "positive"]
LEAST_ACCURACY = 0.85

# Strong regularisation, because there are few sentences.
DECAY = 0.003
# A feature's least standard deviation, relative to the mean of all.
LEAST_SPREAD = 1e-4


@dataclass(frozen=True)
class Taught:
    last: nn.Linear
    accuracy: float  # each quarter scored by a model trained on the other three
    judged: int


def teach(features: torch.Tensor, sentences: list[Sentence]) -> Taught:
    labels = torch.tensor([LABELS.index(each.label) for each in sentences])
    fold = torch.tensor([FOLDS if each is None else each for each in folds(sentences)])
    right = sum(
        int(
            (
                _fit(features[fold != k], labels[fold != k])(features[fold == k]).argmax(1)
                == labels[fold == k]
            ).sum()
        )
        for k in range(FOLDS)
    )
    judged = int((fold < FOLDS).sum())
    return Taught(_fit(features, labels), right / judged, judged)


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
