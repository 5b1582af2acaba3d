"""A stand-in for NVIDIA's trtexec, for the rehearsal of the gpu flavour: no GPU, no TensorRT.

    REHEARSAL_TENSORRT=11.1.0 REHEARSAL_COMPUTE_CAPABILITY=8.6 \\
        python trtexec.py --onnx=model.onnx --saveEngine=model.plan --stronglyTyped --skipInference

The command line is read as strictly as the real one reads it, with its words, its exit codes, and
what it leaves on the disk. Networks are parsed and built by NVIDIA's own code (rtx.py); since
nothing could load such an engine, the plan that is written is the rehearsal's (rehearsal_plan.py).

    REHEARSAL_TENSORRT            10.16.1 or 11.1.0: the option table, and how layers are described
    REHEARSAL_COMPUTE_CAPABILITY  for example 8.6
    REHEARSAL_SECONDS             how long a build takes, for interrupting it

Followed: samples/trtexec/trtexec.cpp, samples/common/{sampleOptions,sampleEngines,sampleReporting}
.cpp and logging.h of github.com/NVIDIA/TensorRT at "10.16.1 update" and "TensorRT 11.1".
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import rtx
from rtx import Network, Profile, Tensor
from tensorrt_backend.rehearsal_plan import Machine, Plan, dotted
from trtexec_options import Invalid, Kind, parse, profiles, table

# They would change what is built or where it may run, and the rehearsal would only pretend.
NOT_PLAYED = ("--best", "--bf16", "--fp16", "--int8", "--loadEngine", "--versionCompatible")

# As tensors are described: by 10.16 under "Format/Datatype", by 11.1 apart.
FORMATS = {
    "HALF": "Row major linear FP16 format",
    "FLOAT": "Row major linear FP32",
    "UINT8": "Row major linear UInt8 format",
    "INT64": "Row major linear Int64 format",
}
TYPES = {"HALF": "Half", "FLOAT": "Float", "UINT8": "UInt8", "INT64": "Int64"}
TRITON_TYPES = {"HALF": "FP16", "FLOAT": "FP32"}

TIMING_CACHE = b"triton-bundle rehearsal timing cache\n"


class Refused(RuntimeError):
    """A stage of the build says no; the lines for the log."""


def log(severity: str, line: str) -> None:
    stream = sys.stderr if severity in "WE" else sys.stdout
    print(f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [{severity}] {line}", file=stream, flush=True)


def from_tensorrt(severity: str, message: str) -> None:
    log(severity, f"[TRT] {message}")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    machine = Machine.played()
    old = machine.tensorrt[0] == 10
    kinds = table(machine.tensorrt[0])
    banner = _banner(machine, words)
    print(f"&&&& RUNNING {banner}", flush=True)
    if not words or {"--help", "-h"} & set(words):
        _help(kinds)
        return 0
    try:
        options = parse(words, kinds)
        found = profiles(options)
    except Invalid as fault:
        _help(kinds)
        for line in str(fault).splitlines():
            log("E", line)
        if old:  # 11's parseArgs returns without the last line
            print(f"&&&& FAILED {banner}", flush=True)
        return 1
    try:
        _run(options, found, words, machine)
    except Refused as fault:
        for line in (*str(fault).splitlines(), "Engine set up failed"):
            log("E", line)
        print(f"&&&& FAILED {banner}", flush=True)
        return 1
    print(f"&&&& PASSED {banner}", flush=True)
    return 0


def _banner(machine: Machine, words: list[str]) -> str:
    major, minor, patch, build = machine.tensorrt
    number = major * 10000 + minor * 100 + patch
    return f"TensorRT.trtexec [TensorRT v{number}] [b{build}] # {' '.join(['trtexec', *words])}"


def _help(kinds: dict[str, Kind]) -> None:
    print("=== Model Options ===", *kinds, "=== Help ===", sep="\n", flush=True)


def _run(
    options: dict[str, str], found: dict[str, Profile], words: list[str], machine: Machine
) -> None:
    not_played = [name for name in NOT_PLAYED if name in options]
    if machine.tensorrt[0] == 10 and "--stronglyTyped" not in options:
        not_played.append("weak typing")
    if not_played:
        raise Refused(f"rehearsal: {', '.join(not_played)} is real but not played here")
    log("I", f"Compute Capability: {machine.compute_capability}")
    log("I", f"TensorRT version: {dotted(machine.tensorrt)}")
    network = Network(from_tensorrt)
    log("I", "Start parsing network model.")
    if not network.parse(Path(options["--onnx"])):
        raise Refused("Failed to parse onnx file\nParsing model failed")
    _check_names(network, found)
    saved = options.get("--saveEngine")
    if saved:
        # What was there is gone before the build begins, and a failed one leaves an empty file
        # behind (FileStreamWriter in sampleEngines.cpp).
        Path(saved).write_bytes(b"")
    _wait()
    engine = network.build(found, machine.compute_capability)
    if engine is None:
        raise Refused("Building engine failed\nFailed to create engine from model or file.")
    log("I", f"Created engine with size: {len(engine) / 2**20:.6g} MiB")
    if saved:
        Path(saved).write_bytes(_plan(network, found, words, machine).dump())
    if cache := options.get("--timingCacheFile"):
        _update(Path(cache))
    if layers := options.get("--exportLayerInfo"):
        detailed = options.get("--profilingVerbosity") in ("detailed", "verbose")
        Path(layers).write_text(_described(network, detailed, machine.tensorrt[0]))


def _check_names(network: Network, found: dict[str, Profile]) -> None:
    """As setupNetworkAndConfig in sampleEngines.cpp."""
    inputs = {tensor.name: tensor for tensor in network.inputs}
    for name in found:
        if name not in inputs:
            raise Refused(f'Cannot find input tensor with name "{name}" in the network inputs! ')
        if -1 not in inputs[name].shape:
            raise Refused("Static model does not take explicit shapes")


def _wait() -> None:
    end = time.monotonic() + float(os.environ.get("REHEARSAL_SECONDS") or 0)
    while (left := end - time.monotonic()) > 0:
        from_tensorrt("I", f"rehearsal: {left:.0f} s of the build left")
        time.sleep(min(1, left))  # this is what stands for a long build


def _plan(network: Network, found: dict[str, Profile], words: list[str], machine: Machine) -> Plan:
    (onnx,) = (word.partition("=")[2] for word in words if word.startswith("--onnx="))
    header = {
        "tensorrt": dotted(machine.tensorrt),
        "compute_capability": machine.compute_capability,
        "shapes": {name: vars(profile) for name, profile in found.items()},
        "flags": words,
        "inputs": _as_triton_says(network.inputs),
        "outputs": _as_triton_says(network.outputs),
    }
    return Plan(header, Path(onnx).read_bytes())


def _as_triton_says(tensors: list[Tensor]) -> dict[str, Any]:
    """For the plan's header, so that the server needs no parser."""
    return {
        each.name: {
            "type": f"TYPE_{TRITON_TYPES.get(each.type, each.type)}",
            "shape": list(each.shape),
        }
        for each in tensors
    }


def _update(cache: Path) -> None:
    known = cache.read_bytes() if cache.exists() else TIMING_CACHE
    cache.write_bytes(known + b"entry\n")
    log("I", f"Saved {cache.stat().st_size} bytes of timing cache to {cache}")


def _described(network: Network, detailed: bool, major: int) -> str:
    """The engine inspector's JSON. TensorRT fuses layers; here each stands for itself."""
    layers = [_layer(each, major) if detailed else each.name for each in network.layers()]
    tensors = [*network.inputs, *network.outputs]
    if major == 10:
        ends: dict[str, Any] = {"Bindings": [tensor.name for tensor in tensors]}
    else:
        ends = {"I/O Tensors": [{"Name": each.name} | _type(each, 11) for each in tensors]}
    return json.dumps({"Layers": layers} | ends, indent=2) + "\n"


def _layer(layer: rtx.Layer, major: int) -> dict[str, Any]:
    return {
        "Name": layer.name,
        "LayerType": layer.kind,
        "Inputs": [{"Name": each.name} | _type(each, major) for each in layer.inputs],
        "Outputs": [{"Name": each.name} | _type(each, major) for each in layer.outputs],
    }


def _type(tensor: Tensor, major: int) -> dict[str, Any]:
    """In 11.x as "Migrating IEngineInspector Usage" of its docs has it, and as the strings of both
    libraries confirm."""
    dims = {"Dimensions": list(tensor.shape)}
    if major == 10:
        return dims | {"Format/Datatype": FORMATS.get(tensor.type, tensor.type)}
    datatype = {"Datatype": TYPES.get(tensor.type, tensor.type)}
    return dims | datatype | {"Format": "Format not available due to dynamic shapes"}


if __name__ == "__main__":
    sys.exit(main())
