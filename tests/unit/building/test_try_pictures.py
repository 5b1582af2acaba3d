"""Ways to prepare pictures, of which one is better by chance alone."""

from typing import Any, cast

import numpy as np

from scripts.evaluation.scores import Answers
from scripts.steps.try_pictures import CHANCE, Asked, Guess, Tried, climb

DRAWS, ITEMS, GUESSES = 400, 100, 16


class Equal:
    """Each way is right as often, of other pictures."""

    random = np.random.default_rng(0)

    def __init__(self) -> None:
        self.usual = self.random.random(ITEMS) < 0.8

    def about(self, guess: Guess, in_order: bool = False) -> Tried:
        wrong_at, right_at = self.random.random((2, ITEMS)) < [[0.1 / 0.8], [0.1 / 0.2]]
        right = np.where(self.usual, ~wrong_at, right_at) if guess.how else self.usual
        first = (~right).astype(np.int64)[:, None]
        answers = Answers(["a", "b"], np.zeros(ITEMS, np.int64), first, np.ones(ITEMS))
        return Tried(guess, answers, in_order)


def test_of_ways_that_are_equally_right_the_usual_one_stays() -> None:
    guesses, taken = [Guess(str(number), {"crop": number}) for number in range(GUESSES)], 0
    for _ in range(DRAWS):
        asked: Any = Equal()
        usual = asked.about(Guess("as usual", {}))
        taken += climb(cast(Asked, asked), usual, [lambda _: guesses]) is not usual
    assert taken <= CHANCE * DRAWS
