"""Commands that measure."""

from typing import Any
from unittest.mock import patch

import numpy as np

from benchmark import compare, contenders
from benchmark.torture import command as torturing
from benchmark.torture.judging import Row
from scripts.evaluation.figures import compute_figures
from scripts.evaluation.scores import Answers
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import Measurement, Sample
from scripts.measuring.photos import Inputs
from scripts.measuring.report import evaluation
from scripts.measuring.results import Change, Comparison
from scripts.measuring.server_side import Counters
from scripts.measuring.workload import ENSEMBLE, NETWORK, TEXTBOOK, Configuration, Target
from scripts.recipes.layout import Share
from scripts.settings.settings import DEFAULTS, Settings
from scripts.tuning.search import Candidate, Goal, OnGpu, Score, conclude
from tests.shown.running import PIPELINE, SERVER, STEPS, command, run


def measurements() -> list[Measurement]:
    def one(
        label: str, inputs: str, rate: float, at: int, batch: int = 1, spread: float = 0.01
    ) -> Any:
        parts = STEPS if label != NETWORK else ()
        target = Target(label, PIPELINE, SERVER, SERVER, "INPUT", (STEPS[1],), parts=parts)
        counted = {
            PIPELINE: Counters(requests=100, total=90_000_000_000),
            STEPS[1]: Counters(
                requests=100,
                pictures=100,
                executions=40,
                queue=9_000_000_000,
                input=10**8,
                compute=76_000_000_000,
                output=10**7,
            ),
        }
        cpu = {"resnet50_onnx": 1031.4, "envoy": 31.25, "bundle_door": 112.7, "tritonserver": 5.1}
        samples = [
            Sample(rate * (1 + n * spread), 1000.04, 12345.6, 23456.7, 34567.8, 100, counted,
                   cpu, dict(zip(STEPS, (12.0, 25.0, 0.2), strict=True)), number=n)
            for n in range(3)
        ]  # fmt: skip
        asked = Configuration(target, Inputs(inputs, (b"",)), "grpc", batch, at)
        return Measurement(asked, tuple(samples))

    rates = {"8.5 MP": (28.4, 10.4), "holiday-photos-of-2026": (1112.5, 512.5)}
    found = [one(ENSEMBLE, name, rate, at) for name, (rate, _) in rates.items() for at in (1, 4)]
    found += [one(ENSEMBLE, "8.5 MP", 33.3, 8, spread=0.3), one(ENSEMBLE, "8.5 MP", 33.3, 1, 8)]
    found += [one(TEXTBOOK, name, rate, 4) for name, (_, rate) in rates.items()]
    return [*found, one(NETWORK, "pixels", 1250.5, 1), one(NETWORK, "pixels", 1250.5, 4)]


def bench() -> None:
    ratio = Estimate(2.13, 1.98, 2.55)
    changes = [
        Change("ensemble, 8.5 MP, grpc, 4 at a time", ratio, Estimate(0.5, 0.45, 0.61)),
        Change("bare network, pixels, grpc, 4 at a time", None, None, "failed then"),
    ]
    warnings = ["machine.processor: Intel(R) Xeon(R) Processor @ 2.10GHz -> AMD EPYC 9B14"]
    causes = ["settings.PRECISION: none -> bf16"]
    compared = Comparison("2026-11-25 10:30 UTC", changes, warnings, causes)
    answered = {"grpc": {"triton-bundle-server.1": 123_456, "triton-bundle-server.2": 98_765}}
    command("bench").show(measurements(), compared, answered)


def rivals() -> None:
    figures = {
        compare.Cell(photo, at, name): compare.Figures(
            Estimate(rate, rate - 1, rate + 1), 12345.6, 23456.7,
            {way: Estimate(2.71, 2.5, 12.93) for way in contenders.WAYS if way != name},
        )
        for photo in ("8.5 MP", "500x375")
        for at in (1, 4)
        for name, rate in (("bundle", 108.5), ("bundle-grpc", 110.1), ("bundle-socket", 99.9),
                           ("textbook", 17.7), ("fastapi", 42.5), ("bentoml", 39.1))
    }  # fmt: skip
    compare.show(figures)


def evaluated() -> None:
    classes = [f"class number {number} of the birds" for number in range(12)]
    truth = np.arange(600) % 12
    first = np.where(np.arange(600) % 7, truth, (truth + 1) % 12)
    answers = Answers(classes, truth, first[:, None], np.full(600, 0.987))
    original = "birds.pth in PyTorch", np.where(np.arange(600) % 9, truth, (truth + 1) % 12)
    figures = compute_figures(
        answers, np.full(600, 12345.6), 60.0, {"broken.jpg": "no picture"}, original
    )
    told = evaluation.warnings(figures, 3, "build/eval/20261126T103000Z")
    command("eval").show(figures, told, "version 12: mobilenet_v2, weights birds.pth, bf16")


def torture() -> None:
    name = "1,000 clients that open a connection and say nothing, again for its memory (2 of 3)"
    memory = (512_000_000, 1_234_000_000, 523_000_000)
    rows = [
        Row(name, "it went on", "", 12_345, 0, 0, 12.34, memory, restored)
        for restored in (12.3, None)
    ]
    torturing._show(rows, 0.123)


def tune() -> None:
    """What is found better, and what is not, on a CPU and on a GPU."""
    was, now = Score(8, 104.25, 123.4), Score(8, 1412.5, 98.7)
    found = (
        (
            Candidate("bf16", Share(1, 2), Share(2, 1)),
            Candidate("int8", Share(2, 1), Share(2, 2)),
            "mobilenet_v2 from torchvision; a processor, 2 cores",
        ),
        (
            OnGpu("fp16", Share(2, 1), Share(16, 2)),
            OnGpu("fp16", Share(3, 1), Share(16, 1)),
            "mobilenet_v2 from torchvision; TensorRT on 2 x NVIDIA L4; a processor, 16 cores",
        ),
    )
    with patch("scripts.settings.dotenv_file.change"):
        for start, best, of in found:
            settings, scores = Settings(DEFAULTS | start.settings), {start: was, best: now}
            for goal, winner in ((Goal(150.5), best), (Goal(None), start)):
                conclude(settings, goal, winner, start, scores, of)


def prove() -> None:
    claims = ("TensorRT builds the network of pictures from fp16",
              "A rollout on a GPU loses no request", "Several GPUs serve together")  # fmt: skip
    rows = [{"claim": claim, "confirmed": confirmed}
            for claim, confirmed in zip(claims, (True, False, None), strict=True)]  # fmt: skip
    run("prove", {
        "scripts.measuring.proof.prove": lambda: {"rows": rows},
        "scripts.measuring.proof.as_markdown": str,
        "scripts.base.files.write": lambda *_: None,
    })  # fmt: skip


SHOWN = {
    "bench": bench, "rivals": rivals, "eval": evaluated, "torture": torture, "tune": tune,
    "prove": prove,
}  # fmt: skip
