"""The cascade compared with the ensemble of its large network: how it divides pictures between its
networks, and whether it agrees with the large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.base import console
from scripts.measuring import machine
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import CASCADE, Subject, Target, make_target
from scripts.recipes import pipelines
from scripts.recipes.asking import ask_tensors
from scripts.recipes.pipelines import Pipeline
from scripts.server.triton import triton_api
from scripts.stacks.state import State

UNTRAINED = {"source": "random"}


@dataclass(frozen=True)
class Division:
    """The result for pictures of one kind."""

    pictures: int
    passed_on: int  # to the large network
    agree: int  # same top-1 as the large network alone

    @classmethod
    def from_probabilities(
        cls,
        answered_by: Sequence[str],
        large: str,
        cascade: NDArray[np.float32],
        alone: NDArray[np.float32],
    ) -> Division:
        """From the probabilities [pictures, classes] of both."""
        return cls(
            len(answered_by),
            sum(name == large for name in answered_by),
            int((cascade.argmax(axis=1) == alone.argmax(axis=1)).sum()),
        )

    def __str__(self) -> str:
        return (
            f"{self.passed_on} of {self.pictures} passed on to the large network, "
            f"same top-1 on {self.agree} of {self.pictures}"
        )


def find_subject(server: State, cascade: Pipeline) -> Subject:
    """The cascade and the pipeline whose network it uses."""
    ours = make_target(server, cascade.ensemble, CASCADE)
    rule = choice(ours)
    lender = next(each for each in pipelines.every() if rule["then"] in each.recipe.members)
    large, small = (machine.describe_served(server, each) for each in (lender, cascade))
    return Subject(
        f"a cascade of {small['network']} and {large['network']}",
        (ours, make_target(server, lender.ensemble)),
        large
        | {f"small {part}": small[part] for part in ("network", "weights", "onnx", "precision")},
        (*ours.steps, rule["then"]),
    )


def choice(cascade: Target) -> dict[str, str]:
    """The config of its last step: both networks and the threshold."""
    config = triton_api.get(cascade.http, f"/models/{cascade.steps[-1]}/config")
    return {name: value["string_value"] for name, value in config["parameters"].items()}


def measure_division(asked: Subject, pictures: Sequence[Inputs]) -> dict[str, Any]:
    """Sends each picture once to both, for the report."""
    cascade, ensemble = asked.pipelines
    rule = choice(cascade)
    found = {}
    for inputs in pictures:
        with console.waiting(f"sending to the cascade and to its large network: {inputs.name}"):
            answers = _ask(cascade, inputs, "OUTPUT", "ANSWERED_BY")
            alone = _ask(ensemble, inputs, "OUTPUT")["OUTPUT"]
        by = [name.decode() for (name,) in answers["ANSWERED_BY"]]
        found[inputs.name] = Division.from_probabilities(by, rule["then"], answers["OUTPUT"], alone)
        console.note(f"{inputs.name}, threshold {rule['threshold']}: {found[inputs.name]}")
    weightless = list_untrained(asked.served)
    if weightless:
        console.note(
            f"untrained weights: {' and '.join(weightless)}; their agreement means nothing"
        )
    return {
        "cascade": {
            "threshold": float(rule["threshold"]),
            "small": rule["first"],
            "large": rule["then"],
            "untrained": weightless,
            "pictures": {name: asdict(division) for name, division in found.items()},
        }
    }


def list_untrained(served: Mapping[str, Any]) -> list[str]:
    """The networks with untrained weights."""
    networks = (("small network", "small weights"), ("network", "weights"))
    return [str(served[name]) for name, weights in networks if served[weights] == UNTRAINED]


def _ask(target: Target, inputs: Inputs, *outputs: str) -> dict[str, NDArray[Any]]:
    """The outputs by name, one row per picture."""
    questions = [{target.input: np.frombuffer(file, np.uint8)[None]} for file in inputs.rows]
    answers = [*ask_tensors(target.http, target.model, questions)]
    return {name: np.concatenate([each[name] for each in answers]) for name in outputs}
