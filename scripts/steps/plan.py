"""ONNX -> TensorRT plan for this GPU, built with trtexec and installed atomically.

    python -m scripts.steps.plan --onnx build/onnx --timing-caches build/cache/timing \
        --out build/plan --batch 32,256

Out: model.plan, manifest.json, and the logs of trtexec. Runs in the pytorch container.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.artefacts import gpus
from scripts.artefacts.exporting import start
from scripts.artefacts.gpus import Gpu
from scripts.artefacts.manifest import NOTHING, Manifest, differences
from scripts.artefacts.progress import tell
from scripts.artefacts.shapes import of_pixels
from scripts.base import files
from scripts.base.errors import UserError

# On PATH in NVIDIA's pytorch image; the second is its place in older ones.
TRTEXEC = ("trtexec", "/usr/src/tensorrt/bin/trtexec")


VISIBLE = "CUDA_VISIBLE_DEVICES"

# A tensor's type in the layer information of TensorRT 11 ("Half") and of 10.16 ("Channel major FP16
# format where channel % 8 == 0").
TYPED = ("Datatype", "Format/Datatype")
HALF = re.compile("half|fp16", re.IGNORECASE)

# In trtexec's log: the line with the root cause. The last two are of trtexec itself, which writes
# them without "[E]" and ends.
TELLING = re.compile(
    r"Error Code \d+: (?!Cuda Runtime)|Assertion failed|Unknown option"
    r"|Cuda failure|Cannot find any available "
)


def gpu_seen_here() -> Gpu:
    """The GPU that trtexec uses: the first that is visible to CUDA."""
    try:
        asked = subprocess.run(gpus.QUERY, capture_output=True, text=True)
    except OSError:
        raise UserError("no GPU found (nvidia-smi is missing)", "make doctor shows why") from None
    try:
        seen = gpus.parse(asked.stdout if asked.returncode == 0 else "")
    except ValueError:
        lines = (asked.stdout + asked.stderr).strip().splitlines() or ["no message"]
        raise UserError(f"nvidia-smi sees no GPU: {lines[-1]}", "make doctor shows why") from None
    visible = os.environ.get(VISIBLE, gpus.ALL)
    return gpus.choose_gpus(seen, visible, VISIBLE)[0]


def tensorrt_version() -> str:
    """Major.minor.patch, from trtexec's banner: [TensorRT v110100]."""
    asked = subprocess.run([_trtexec(), "--help"], capture_output=True, text=True)
    banner = re.search(r"\[TensorRT v(\d+)\]", asked.stdout + asked.stderr)
    if not banner:
        raise UserError("trtexec does not report its version", "check TRITON_TAG")
    number = int(banner[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _trtexec() -> str:
    for name in TRTEXEC:
        if found := shutil.which(name):
            return found
    raise UserError("trtexec is not in this image", "check TRITON_TAG")


def identity(onnx: Path, gpu: Gpu, tensorrt: str, profile: Mapping[str, str]) -> dict[str, Any]:
    """Everything that a plan depends on. It loads only in the TensorRT version that built it, and
    only on the compute capability that it was built for."""
    return {
        "onnx": Manifest.of_export(onnx).onnx["sha256"],
        "TensorRT": tensorrt,
        "compute capability": gpu.compute_capability,
        "GPU": gpu.name,
        "shapes": dict(profile),
    }


def why_build(out: Path, wanted: dict[str, Any]) -> str | None:
    """None if the plan fits; otherwise what changed, in one line."""
    try:
        manifest = json.loads((out / "manifest.json").read_text())
        plan_is_whole = files.sha256(out / "model.plan") == manifest["plan"]["sha256"]
    except (OSError, ValueError, KeyError):
        return "no plan yet"
    changes = differences(manifest["identity"], wanted)
    if not changes and not plan_is_whole:
        changes = ["model.plan is not the file that was built"]
    return "; ".join(changes) or None


def main(
    onnx: Path,
    timing_caches: Path,
    out: Path,
    shapes: Mapping[str, str] = NOTHING,
    batch: tuple[int, int] | None = None,
) -> None:
    """`onnx`: the fp16 directory that export wrote; `timing_caches`: a folder for them; `shapes`:
    trtexec's options, or `batch`: of pictures, the usual one and the largest."""
    gpu = gpu_seen_here()
    profile = shapes
    if batch:
        profile = of_pixels("input", Manifest.of_export(onnx).transform["crop"], *batch)
    wanted = identity(onnx, gpu, tensorrt_version(), profile)
    reason = why_build(out, wanted)
    if reason is None:
        tell(f"{out} fits: nothing to build")
        return
    tell(f"- building a plan for {gpu.name}: {reason}")
    build(onnx, gpu, wanted, timing_caches / _name_cache(wanted), out)


def _name_cache(wanted: Mapping[str, Any]) -> str:
    """TensorRT takes times of another GPU or version without a word, and they can make a plan slow
    or wrong (NvInfer.h)."""
    gpu = re.sub(r"\W+", "-", wanted["GPU"]).lower()
    return f"{wanted['TensorRT']}-{gpu}-{wanted['compute capability']}.cache"


def build(onnx: Path, gpu: Gpu, wanted: dict[str, Any], timing_cache: Path, out: Path) -> None:
    timing_cache.parent.mkdir(parents=True, exist_ok=True)
    flags = [
        f"--onnx={onnx / 'model.onnx'}",
        # fp16 comes from the graph itself: TensorRT 11 no longer has --fp16.
        "--stronglyTyped",
        *(f"--{name}={value}" for name, value in wanted["shapes"].items()),
        "--skipInference",
        f"--timingCacheFile={timing_cache}",
    ]
    with files.whole_folder(out) as draft:
        plan = draft / "model.plan"
        seconds = _run([*flags, f"--saveEngine={plan}"], draft / "trtexec.log")
        if not plan.exists():
            raise UserError("trtexec exited without writing a plan", "see its log above")
        halves, layers = _precision(flags, draft) if is_half(onnx) else (0, 0)
        manifest = {
            "identity": wanted,
            "gpu": asdict(gpu),
            "flags": flags,
            "precision": {"half layers": halves, "layers": layers},
            "plan": {"sha256": files.sha256(plan), "bytes": plan.stat().st_size},
            "seconds": round(seconds, 1),
        }
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    tell(f"  built in {seconds:.0f} s, {halves} of {layers} layers in half precision")


def is_half(onnx: Path) -> bool:
    """Whether the export is in half precision. A user's own network is used as it is."""
    manifest = Manifest.load(onnx / "manifest.json")
    return manifest is not None and manifest.identity["precision"] == "fp16"


def _precision(flags: list[str], folder: Path) -> tuple[int, int]:
    """The number of layers in half precision, and of all with a known type. Strong typing fixes the
    precision; this verifies it with a second, temporary build: a plan built with detailed layer
    information is slower to enqueue (ProfilingVerbosity in NVIDIA's docs). The timing cache makes
    the build short."""
    described = folder / "layers.json"
    detailed = ["--profilingVerbosity=detailed", f"--exportLayerInfo={described}"]
    tell("  checking the types of its layers")
    try:
        _run([*flags, *detailed], folder / "layers.log", shown=False)
        halves, layers = count_halves(json.loads(described.read_text()))
    except (UserError, OSError, ValueError) as fault:
        tell(f"  warning: its layers cannot be described ({fault})")
        return 0, 0
    if not layers:
        tell("  warning: no layer reports its type; only strong typing guarantees the precision")
    elif not halves:
        raise UserError(
            f"the plan came out in fp32: none of its {layers} layers is half precision",
            "nothing was changed; export in fp16",
        )
    return halves, layers


def _run(options: list[str], log: Path, shown: bool = True) -> float:
    """Runs trtexec, saving and showing its log; reports its own reason if it fails."""
    began = time.monotonic()
    with (
        log.open("w") as kept,
        subprocess.Popen(
            [_trtexec(), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run,
    ):
        assert run.stdout
        for line in run.stdout:
            kept.write(line)
            if shown:
                tell(f"  {line.rstrip()}")
    if run.returncode:
        reason = why_it_failed(log.read_text()) or f"it exited with {run.returncode}"
        raise UserError(f"trtexec failed: {reason}", "nothing was changed")
    return time.monotonic() - began


def why_it_failed(log: str) -> str:
    """TensorRT's own message; empty if there is none."""
    errors = [line for line in log.splitlines() if "[E]" in line or TELLING.search(line)]
    first = next(filter(TELLING.search, errors), errors[0] if errors else "")
    return re.sub(r"^(\[[^]]*\] )*", "", first.strip())


def count_halves(information: dict[str, Any]) -> tuple[int, int]:
    """From an --exportLayerInfo file: the number of layers with outputs in half precision, and of
    all with known output types."""
    layers = [layer for layer in information.get("Layers", ()) if isinstance(layer, dict)]
    known = [list(_types(layer.get("Outputs", ()))) for layer in layers]
    return sum(any(map(HALF.search, types)) for types in known), sum(map(bool, known))


def _types(tensors: Iterable[dict[str, Any]]) -> Iterator[str]:
    for tensor in tensors:
        yield from (str(tensor[name]) for name in TYPED if name in tensor)


if __name__ == "__main__":
    start(main)
