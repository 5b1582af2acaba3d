"""ONNX -> TensorRT plan for this GPU, by trtexec; put in place whole or not at all.

    python -m scripts.steps.plan --onnx build/onnx --out build/plan \
        --minShapes input:1x3x224x224 --optShapes input:32x3x224x224 --maxShapes input:256x3x224x224

Out: model.plan, manifest.json, layers.json and trtexec.log. Runs in the pytorch container.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.base import files
from scripts.base.errors import UserError, guarded
from scripts.recipes import shapes
from scripts.steps.manifest import Manifest, differences

# On PATH in NVIDIA's pytorch image; the second is where older ones keep it.
TRTEXEC = ("trtexec", "/usr/src/tensorrt/bin/trtexec")


# "Half", or "Channel major FP16 format where channel % 8 == 0", as the version will have it.
HALF = re.compile("half|fp16", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    name: str
    compute_capability: str
    driver: str
    memory: str

    @classmethod
    def seen_here(cls) -> Gpu:
        """The first GPU that this container was given."""
        query = "--query-gpu=name,compute_cap,driver_version,memory.total"
        try:
            asked = subprocess.run(
                ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True
            )
        except OSError:
            raise UserError(
                "no GPU is seen here (no nvidia-smi)", "make doctor tells why"
            ) from None
        try:
            return cls.parse(asked.stdout if asked.returncode == 0 else "")
        except ValueError:
            said = (asked.stdout + asked.stderr).strip().splitlines() or ["it said nothing"]
            raise UserError(
                f"nvidia-smi sees no GPU: {said[-1]}", "make doctor tells why"
            ) from None

    @classmethod
    def parse(cls, rows: str) -> Gpu:
        """The first of the rows that nvidia-smi prints; ValueError where there is none."""
        first = next(csv.reader(rows.splitlines(), skipinitialspace=True), [])
        if len(first) != 4:
            raise ValueError(rows)
        return cls(*first)


def tensorrt_version() -> str:
    """Major.minor.patch, from trtexec's own banner: [TensorRT v110100]."""
    asked = subprocess.run([_trtexec(), "--help"], capture_output=True, text=True)
    banner = re.search(r"\[TensorRT v(\d+)\]", asked.stdout + asked.stderr)
    if not banner:
        raise UserError("trtexec does not tell its version", "check TRITON_TAG")
    number = int(banner[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _trtexec() -> str:
    for name in TRTEXEC:
        if found := shutil.which(name):
            return found
    raise UserError("trtexec is not in this image", "check TRITON_TAG")


def identity(onnx: Path, gpu: Gpu, tensorrt: str, profile: Mapping[str, str]) -> dict[str, Any]:
    """All that a plan depends on. It loads only under the TensorRT that built it, and only on the
    compute capability it was built for."""
    manifest = Manifest.load(onnx / "manifest.json")
    if manifest is None:
        raise UserError(f"{onnx} holds no exported network", "export one: make up")
    return {
        "onnx": manifest.onnx["sha256"],
        "TensorRT": tensorrt,
        "compute capability": gpu.compute_capability,
        "GPU": gpu.name,
        "shapes": dict(profile),
    }


def why_build(out: Path, wanted: dict[str, Any]) -> str | None:
    """None when the plan fits; else what does not, in one line."""
    try:
        manifest = json.loads((out / "manifest.json").read_text())
        plan_is_whole = files.sha256(out / "model.plan") == manifest["plan"]["sha256"]
    except (OSError, ValueError, KeyError):
        return "no plan yet"
    changes = differences(manifest["identity"], wanted)
    if not changes and not plan_is_whole:
        changes = ["model.plan is not the file that was built"]
    return "; ".join(changes) or None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--onnx", type=Path, required=True, help="what export made, in fp16")
    for option in shapes.OPTIONS:
        parser.add_argument(f"--{option}", required=True, help="as trtexec takes it")
    parser.add_argument("--timing-cache", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    gpu = Gpu.seen_here()
    profile = {option: getattr(options, option) for option in shapes.OPTIONS}
    wanted = identity(options.onnx, gpu, tensorrt_version(), profile)
    reason = why_build(options.out, wanted)
    if reason is None:
        print(f"{options.out} fits: nothing to build")
        return 0
    print(f"- building a plan for {gpu.name}: {reason}", flush=True)
    build(options.onnx, gpu, wanted, options.timing_cache, options.out)
    return 0


def build(
    onnx: Path, gpu: Gpu, wanted: dict[str, Any], timing_cache: Path | None, out: Path
) -> None:
    with files.whole_folder(out) as draft:
        plan, layers = draft / "model.plan", draft / "layers.json"
        flags = [
            f"--onnx={onnx / 'model.onnx'}",
            f"--saveEngine={plan}",
            # fp16 comes from the graph itself: TensorRT 11 has no --fp16 any more.
            "--stronglyTyped",
            *(f"--{name}={value}" for name, value in wanted["shapes"].items()),
            "--skipInference",
            "--profilingVerbosity=detailed",
            f"--exportLayerInfo={layers}",
        ]
        if timing_cache:
            timing_cache.parent.mkdir(parents=True, exist_ok=True)
            flags.append(f"--timingCacheFile={timing_cache}")
        seconds = _run([_trtexec(), *flags], draft / "trtexec.log")
        if not plan.exists():
            raise UserError("trtexec ended without a plan", "see its log above")
        halves, all_layers = count_halves(json.loads(layers.read_text()))
        if not halves:
            raise UserError(
                f"the plan came out in fp32: none of its {all_layers} layers is half precision",
                "nothing was put in place; export in fp16",
            )
        manifest = {
            "identity": wanted,
            "gpu": asdict(gpu),
            "flags": flags,
            "precision": {"half layers": halves, "layers": all_layers},
            "plan": {"sha256": files.sha256(plan), "bytes": plan.stat().st_size},
            "seconds": round(seconds, 1),
        }
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"  built in {seconds:.0f} s, {halves} of {all_layers} layers in half precision")


def _run(command: list[str], log: Path) -> float:
    """trtexec with its log kept, and shown as it comes; its own reason where it fails."""
    began = time.monotonic()
    errors: deque[str] = deque(maxlen=3)
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run,
    ):
        assert run.stdout
        for line in run.stdout:
            kept.write(line)
            print(f"  {line.rstrip()}", flush=True)
            if "[E]" in line or line.startswith("&&&& FAILED"):
                errors.append(re.sub(r"^\[[^]]*\] (\[E\] )?", "", line.strip()))
    if run.returncode:
        reason = errors[0] if errors else f"it exited with {run.returncode}"
        raise UserError(f"trtexec failed: {reason}", "nothing was put in place")
    return time.monotonic() - began


def count_halves(information: dict[str, Any]) -> tuple[int, int]:
    """Of an --exportLayerInfo file: the layers that put out half precision, and all."""
    layers = [layer for layer in information["Layers"] if isinstance(layer, dict)]
    halves = sum(
        any(HALF.search(output.get("Format/Datatype", "")) for output in layer["Outputs"])
        for layer in layers
    )
    return halves, len(layers)


if __name__ == "__main__":
    sys.exit(guarded(main))
