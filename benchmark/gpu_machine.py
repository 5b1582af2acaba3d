"""What of the gpu flavour can be measured on a machine with a GPU and none of NVIDIA's images.

    python -m benchmark.gpu_machine [--arch resnet50] [--weights random] [--photo photo.jpg]

Prints a table, and writes it as JSON. What cannot be run on this machine says why in its row.
"""

import argparse
import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmark import gpu_tensors
from bundle_serving.agreement import compare
from bundle_serving.pictures import Transform, to_pixels
from scripts.artefacts import gpus
from scripts.artefacts.manifest import Torchvision
from scripts.artefacts.picture import mug
from scripts.artefacts.samples import noise
from scripts.base import files
from scripts.base.errors import run_guarded
from scripts.base.paths import ROOT

BATCHES = (1, 8, 32)
LARGEST = max(BATCHES)
PACKAGES = ("torch", "tensorrt", "nvidia-pytriton", "numpy", "pillow")


class NotHere(Exception):
    """Why a measurement cannot be made on this machine."""


def machine() -> Iterator[tuple[str, str]]:
    yield "processor", f"{platform.processor() or platform.machine()}, {cores()} cores"
    try:
        asked = subprocess.run(gpus.QUERY, capture_output=True, text=True)
        yield "GPU", asked.stdout.strip() or "none"
    except OSError:
        yield "GPU", "none"
    for package in PACKAGES:
        if importlib.util.find_spec(package.rpartition("-")[2].replace("pillow", "PIL")):
            yield package, importlib.metadata.version(package)


def decoding(photo: Path | None, seconds: float) -> Iterator[tuple[str, str]]:
    """bundle_serving.pictures in as many processes as cores, as the server runs it."""
    drawn = io.BytesIO()
    mug().resize((3000, 2250)).save(drawn, "JPEG", quality=92)
    file = photo.read_bytes() if photo else drawn.getvalue()
    for decode in ("reduced", "full"):
        for workers in sorted({2**n for n in range(8) if 2**n <= cores()} | {cores()}):
            with ProcessPoolExecutor(workers) as pool:
                work = partial(_decode_for, file, decode, seconds)
                each = sum(pool.map(work, range(workers)))
            yield f"{decode}, {workers} processes", f"{each:.0f} pictures/s"


def _decode_for(file: bytes, decode: str, seconds: float, _: int) -> float:
    how = Transform(256, 224, decode=decode)
    return rate(lambda: to_pixels(file, how), seconds)


def network(wanted: Torchvision, seconds: float) -> Iterator[tuple[str, str]]:
    """The network that the fp16 ONNX graph is made of, against itself in fp32."""
    torch, networks = on_gpu()
    built = networks.build(wanted)
    how = Transform(**built.transform)
    pixels = torch.from_numpy(np.tile(noise(how), (LARGEST // 8, 1, 1, 1))).cuda()
    scores = {}
    for precision in ("fp32", "fp16"):
        model = networks.Pixels(built, precision).eval().cuda()
        with torch.inference_mode():
            scores[precision] = model(pixels[:8]).cpu().numpy()
            for batch in BATCHES:

                def run(model: Any = model, batch: int = batch) -> None:
                    model(pixels[:batch])
                    torch.cuda.synchronize()

                each = rate(run, seconds) * batch
                yield f"{precision}, batch {batch}", f"{each:.0f} pictures/s"
    yield "fp16 against fp32", str(compare(scores["fp32"], scores["fp16"]))


def tensorrt(wanted: Torchvision, seconds: float) -> Iterator[tuple[str, str]]:
    """The same graph, strongly typed, by the TensorRT that pip installs."""
    torch, _ = on_gpu()
    if not importlib.util.find_spec("tensorrt"):
        raise NotHere("no package tensorrt (pip install tensorrt)")
    import tensorrt as trt

    from scripts.steps.export import export

    with tempfile.TemporaryDirectory() as folder:
        export(wanted, Path(folder) / "onnx")
        graph = (Path(folder) / "onnx" / "model.onnx").read_bytes()
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # 11 knows no other
    definition = builder.create_network(1 << int(typed) if typed is not None else 0)
    parser = trt.OnnxParser(definition, logger)
    if not parser.parse(graph):
        raise NotHere(f"it cannot read the graph: {parser.get_error(0)}")
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    crop = definition.get_input(0).shape[-1]
    profile.set_shape("input", *((batch, 3, crop, crop) for batch in (1, LARGEST, LARGEST)))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(definition, config)
    context = trt.Runtime(logger).deserialize_cuda_engine(plan).create_execution_context()
    stream = torch.cuda.Stream()
    for batch in BATCHES:
        pixels = torch.zeros(batch, 3, crop, crop, dtype=torch.uint8, device="cuda")
        scores = torch.empty(batch, 1000, device="cuda")
        context.set_input_shape("input", tuple(pixels.shape))
        context.set_tensor_address("input", pixels.data_ptr())
        context.set_tensor_address("output", scores.data_ptr())

        def run() -> None:
            context.execute_async_v3(stream.cuda_stream)
            stream.synchronize()

        yield f"fp16, batch {batch}", f"{rate(run, seconds) * batch:.0f} pictures/s"


def tensors(seconds: float) -> Iterator[tuple[str, str]]:
    """One model's tensor in the hands of the next, in PyPI's tritonserver."""
    on_gpu()
    for how, copied in (("copied to the host", True), ("where it lies, by DLPack", False)):
        with gpu_tensors.serve_both(copied) as ask:
            yield how, f"{1000 / rate(ask, seconds):.2f} ms for {gpu_tensors.BATCH} pictures"


@cache
def on_gpu() -> tuple[Any, Any]:
    """torch and the networks, where torch has a GPU."""
    if not importlib.util.find_spec("torch"):
        raise NotHere("no package torch")
    import torch

    if not torch.cuda.is_available():
        raise NotHere("no GPU here that torch sees")
    from scripts.steps import networks

    return torch, networks


def rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second, after a first one that is not counted."""
    call()
    began, calls = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        call()
        calls += 1
    return calls / (time.perf_counter() - began)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--weights", default="random", help="default, random, or a file")
    parser.add_argument("--photo", type=Path, help="to decode, instead of a drawing")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu_machine.json")
    options = parser.parse_args(argv)
    wanted = Torchvision(options.arch, options.weights, "fp16")
    table = Table("", "", "", box=None, show_header=False, padding=(0, 2, 0, 0))
    found: dict[str, dict[str, str]] = {}
    measured: dict[str, Iterator[tuple[str, str]]] = {
        "machine": machine(),
        "decoding": decoding(options.photo, options.seconds),
        "network": network(wanted, options.seconds),
        "TensorRT": tensorrt(wanted, options.seconds),
        "tensors": tensors(options.seconds),
    }
    for what, measurements in measured.items():
        try:
            found[what] = rows = dict(measurements)
        except Exception as fault:  # of a driver, of a package: the other rows stand all the same
            reason = str(fault) if isinstance(fault, NotHere) else repr(fault)
            found[what] = rows = {"not run": reason}
        for detail, value in rows.items():
            table.add_row(what, detail, value)
    Console(highlight=False).print(table)
    files.write(options.out, json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
