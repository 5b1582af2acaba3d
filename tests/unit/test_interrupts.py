"""Ctrl-C while it must not interrupt at once."""

from __future__ import annotations

import signal

import pytest

from scripts.base import interrupts


def test_it_comes_afterwards() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.deferred("it is done"):
        signal.raise_signal(signal.SIGINT)
        done.append("to its end")
    assert done
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_one_on_the_way_back_never_comes() -> None:
    with interrupts.ignored():
        with interrupts.deferred("it is done"):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
