"""A stand-in for NVIDIA's trtexec, for the rehearsal of the gpu flavour: no GPU, no TensorRT.

    REHEARSAL_TENSORRT=11.1.0 REHEARSAL_COMPUTE_CAPABILITY=8.6 \\
        python trtexec.py --onnx=model.onnx --saveEngine=model.plan --stronglyTyped --skipInference

Takes and refuses what the real one takes and refuses, in its words, with its exit codes and with
what it leaves on the disk. The plan it writes is the rehearsal's own (rehearsal_plan.py). Settings:

    REHEARSAL_TENSORRT            10.16.1 or 11.1.0; decides the option table
    REHEARSAL_COMPUTE_CAPABILITY  for example 8.6
    REHEARSAL_GPU                 the name of the GPU
    REHEARSAL_SECONDS             how long a build takes, for interrupting it
    REHEARSAL_ACCEPT_FP32         1: build fp32 under strong typing in silence, as the real one does

Followed: samples/trtexec/trtexec.cpp, samples/common/{sampleOptions,sampleEngines,sampleReporting}
.cpp and logging.h of github.com/NVIDIA/TensorRT at "10.16.1 update" and "TensorRT 11.1".
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tensorrt_backend.rehearsal_plan import Machine, Plan, PlanError, deserialized, dotted, version
from tensorrt_backend.rehearsal_plan import header_of as plan_header
from trtexec_options import (
    Invalid,
    Kind,
    Options,
    OutOfRange,
    Profile,
    Refused,
    integer,
    parse,
    profiles,
    table,
)

if TYPE_CHECKING:
    from trtexec_network import Network

# They would change what is built or where it may run, and the rehearsal would only pretend.
NOT_PLAYED = (
    *("--adjustForDLA", "--buildDLAStandalone", "--continue", "--cpuOnly", "--dumpKernelText"),
    *("--helpBuildRoute", "--profile", "--refPair", "--refit", "--runtimePlatform", "--safe"),
    *("--stripAllWeights", "--stripWeights", "--tuneBuildRouteFile", "--tuneBuildRoutes"),
    *("--useDLACore", "--useRuntime", "--vc", "--versionCompatible", "--weightless"),
)

WEAK_FLAGS = ("fp16", "bf16", "int8", "fp8", "int4")

ONES_THAT_TAKE = {
    "int": "=N",
    "size": "=N",
    "number": "=N",
    "text": "=spec",
    "texts": "=spec",
    "shapes": "=spec",
    "pools": "=poolspec",
    "choice": "=mode",
}

TIMING_CACHE = b"triton-bundle rehearsal timing cache\n"


class Failed(RuntimeError):
    """The build is over; all that is to be said has been logged."""

    def __init__(self, *lines: str, banner: bool = True) -> None:
        for line in lines:
            error(line)
        super().__init__()
        self.banner = banner


def _log(severity: str, line: str, stream: IO[str]) -> None:
    print(f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [{severity}] {line}", file=stream, flush=True)


def info(line: str = "") -> None:
    _log("I", line, sys.stdout)


def warn(line: str) -> None:
    _log("W", line, sys.stderr)


def error(line: str) -> None:
    _log("E", line, sys.stderr)


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    machine = Machine.played()
    kinds = table(machine.tensorrt[0])
    banner = _banner(machine, words)
    print(f"&&&& RUNNING {banner}", flush=True)
    if {"--help", "-h"} & {word.partition("=")[0] for word in words}:
        _help(kinds)
        return 0
    old = machine.tensorrt[0] == 10
    if not words:
        _help(kinds)
        if old:
            print(f"&&&& PASSED {banner}", flush=True)
        return 0
    try:
        options = _parsed(words, kinds, banner_on_failure=old)
        _run(options, words, machine)
    except OutOfRange as fault:
        error(f"Uncaught exception detected: {fault}")
    except Failed as fault:
        if not fault.banner:
            return 1
    else:
        print(f"&&&& PASSED {banner}", flush=True)
        return 0
    print(f"&&&& FAILED {banner}", flush=True)
    return 1


def _banner(machine: Machine, words: list[str]) -> str:
    major, minor, patch, build = machine.tensorrt
    number = major * 10000 + minor * 100 + patch
    return f"TensorRT.trtexec [TensorRT v{number}] [b{build}] # {' '.join(['trtexec', *words])}"


def _parsed(words: list[str], kinds: dict[str, Kind], banner_on_failure: bool) -> Options:
    """11's parseArgs returns without the line that says FAILED; 10's main had it."""
    try:
        options = parse(words, kinds)
    except Invalid as fault:
        _help(kinds)
        raise Failed(str(fault), banner=banner_on_failure) from None
    if options.unknown:
        _help(kinds)
        lines = [f"Unknown option: {name} {value}" for name, value in options.unknown]
        raise Failed(*lines, banner=banner_on_failure)
    not_played = [name for name in NOT_PLAYED if options.has(name)]
    if options.text("--hardwareCompatibilityLevel") not in ("", "none"):
        not_played.append("--hardwareCompatibilityLevel")
    if not_played:
        raise Failed(f"rehearsal: {', '.join(not_played)} is real but not played here")
    return options


def _help(kinds: dict[str, Kind]) -> None:
    print("=== Model Options ===\n  --onnx=<file>               ONNX model\n")
    print("=== Build Options ===")
    for name, kind in kinds.items():
        if name.startswith("--") and name != "--onnx":
            print(f"  {name}{ONES_THAT_TAKE.get(kind.name, '')}")
    print("\n=== Help ===\n  --help, -h                  Print this message", flush=True)


def _run(options: Options, words: list[str], machine: Machine) -> None:
    precision = _precision(options, machine)
    _print_options(options, precision)
    _print_device(options, machine)
    try:
        if options.has("--loadEngine"):
            _load(options, machine)
            return
        network = _build(options, words, machine, precision)
    except Refused as fault:
        raise Failed(
            *fault.lines, "Failed to create engine from model or file.", "Engine set up failed"
        ) from None
    _after(options, network.layers(_detailed(options), precision, machine.tensorrt[0]))


def _precision(options: Options, machine: Machine) -> str | None:
    """None under strong typing, else the most that a weakly typed build may use."""
    if machine.tensorrt[0] >= 11:
        return None
    asked = [flag for flag in WEAK_FLAGS if options.has(f"--{flag}")]
    if options.has("--stronglyTyped"):
        for flag in asked:
            warn(
                f"Invalid usage, setting {flag} mode is not allowed if graph is strongly typed. "
                f"Disabling BuilderFlag::k{flag.upper()}."
            )
        return None
    if asked or options.has("--best"):
        warn("Weakly-typed networks have been deprecated in TensorRT.")
    if set(asked) - {"fp16", "bf16"}:
        raise Failed(f"rehearsal: --{asked[-1]} is real but not played here")
    if "fp16" in asked or options.has("--best"):
        return "fp16"
    return asked[0] if asked else "fp32"


def _print_options(options: Options, weak: str | None) -> None:
    strong = "Strongly Typed" if weak is None else "FP32" + f"+{weak.upper()}" * (weak != "fp32")
    info("=== Model Options ===")
    info(f"Format: {'ONNX' if options.has('--onnx') else '*'}")
    info(f"Model: {options.text('--onnx')}")
    info("Output:")
    info("=== Build Options ===")
    info(f"Precision: {strong}")
    info(f"Skip inference: {'Enabled' if options.has('--skipInference') else 'Disabled'}")
    info(f"Save engine: {options.text('--saveEngine')}")
    info(f"Load engine: {options.text('--loadEngine')}")
    info(f"timingCacheMode: {'global' if options.text('--timingCacheFile') else 'local'}")
    info(f"timingCacheFile: {options.text('--timingCacheFile')}")


def _print_device(options: Options, machine: Machine) -> None:
    info("=== Device Information ===")
    info("Available Devices: ")
    info(f'  Device 0: "{machine.gpu}" UUID: GPU-rehearsal')
    device = integer(options.text("--device") or "0")
    if device != 0:
        info(f"Cannot find device ID {device}!")
        raise Failed(banner=False)
    info(f"Selected Device: {machine.gpu}")
    info("Selected Device ID: 0")
    info(f"Compute Capability: {machine.compute_capability}")
    info()
    info("TensorRT version: " + ".".join(str(part) for part in machine.tensorrt[:3]))
    info("Loading standard plugins")


def _load(options: Options, machine: Machine) -> None:
    path = Path(options.text("--loadEngine"))
    try:
        content = path.read_bytes()
    except OSError:
        raise Refused(f"Error opening engine file: {path}") from None
    if options.has("--getPlanVersionOnly"):
        # The real one looks at the first 28 bytes only: a plan that lost its tail still passes.
        header = plan_header(content)
        if header is None:
            short = len(content) < 28
            raise Failed(
                "Failed to read plan file" if short else "Failed to verify a plan tag.",
                "Failed to get plan file version.",
                "Engine set up failed",
            )
        info(f"Plan was created with TensorRT version {dotted(version(header['tensorrt']))}")
        return
    try:
        deserialized(path, machine)
    except PlanError as fault:
        raise Failed(f"Error[{fault.code}]: {fault}", "Engine deserialization failed") from None
    info("rehearsal: the plan loads; nothing was run or timed")


def _build(options: Options, words: list[str], machine: Machine, weak: str | None) -> Network:
    try:
        network = _network(Path(options.text("--onnx")).expanduser(), weak)
    except Refused as fault:
        raise Refused(*fault.lines, "Failed to parse onnx file", "Parsing model failed") from None
    found = _profiles(options, network)
    header = {
        "tensorrt": dotted(machine.tensorrt),
        "compute_capability": machine.compute_capability,
        "gpu": machine.gpu,
        "precision": weak or ("fp32" if network.not_fp16() else "fp16"),
        "strongly_typed": weak is None,
        "shapes": {
            name: {each: list(getattr(profile, each)) for each in ("min", "opt", "max")}
            for name, profile in found.items()
        },
        "flags": words,
        "inputs": network.described(network.inputs),
        "outputs": network.described(network.outputs),
    }
    plan = Plan(header, network.content())
    if options.has("--saveEngine"):
        _write(Path(options.text("--saveEngine")), plan, network, found)
    else:
        _builder(network, found)
        info(f"Created engine with size: {len(plan.dump()) / 2**20:.6g} MiB")
    if options.text("--timingCacheFile"):
        _update_timing_cache(Path(options.text("--timingCacheFile")))
    return network


def _network(path: Path, weak: str | None) -> Network:
    from trtexec_network import Network  # it loads onnx, which most refusals can do without

    info("Start parsing network model.")
    began = time.monotonic()
    network = Network(path)
    accepted = os.environ.get("REHEARSAL_ACCEPT_FP32") == "1"
    if weak is None and not accepted and (faults := network.not_fp16()):
        raise Refused(
            f"rehearsal: not fp16 under strong typing: {', '.join(faults[:3])}"
            f"{' and more' * (len(faults) > 3)}",
            "rehearsal: this refusal is the rehearsal's own rule; the real trtexec would build "
            "fp32 without a word (export the ONNX with weights and compute in fp16)",
        )
    info(f"Finished parsing network model. Parse time: {time.monotonic() - began:.6g}")
    return network


def _profiles(options: Options, network: Network) -> dict[str, Profile]:
    from trtexec_network import check_profiles

    found, warnings = profiles(options)
    for line in warnings:
        warn(line)
    try:
        found = check_profiles(network, found)
    except Refused as fault:
        raise Refused(
            *fault.lines, "Network And Config setup failed", "Building engine failed"
        ) from None
    for name, tensor in network.inputs.items():
        if -1 in tensor.shape and name not in found:
            ones = tuple(1 if size < 0 else size for size in tensor.shape)
            warn(
                f"Dynamic dimensions required for input: {name}, but no shapes were provided. "
                f"Automatically overriding shape to: {'x'.join(map(str, ones))}"
            )
            found[name] = Profile(ones, ones, ones)
    for name, each in found.items():
        info(
            f"Set shape of input tensor {name} for optimization profile 0 to: "
            + " ".join(
                f"{which}={'x'.join(map(str, shape))}"
                for which, shape in (("MIN", each.min), ("OPT", each.opt), ("MAX", each.max))
            )
        )
    return found


def _write(path: Path, plan: Plan, network: Network, found: dict[str, Profile]) -> None:
    """The file is opened, and what was there is gone, before the build begins; a path that cannot
    be opened is noticed when the build is done; a failed build leaves an empty file behind
    (networkToSerializedEngine and FileStreamWriter in sampleEngines.cpp)."""
    try:
        stream = path.open("wb")
    except OSError:
        stream = None
    began = time.monotonic()
    try:
        _builder(network, found)
        if stream is None:
            error("Cannot write to FileStreamWriter")
            if not path.exists():
                raise Refused("Failed to open engine file for reading", "Building engine failed")
            raise Refused("Saving engine to file failed.")
        stream.write(plan.dump())
    except Refused as fault:
        if stream is None:
            raise
        # getBlob() on nothing asserts, and the process ends there and then.
        for line in fault.lines:
            error(line)
        info("Created engine with size: 0 MiB")
        raise Failed(
            'Assertion failure: false && "Attempting to access an empty engine!"', banner=False
        ) from None
    finally:
        if stream is not None:
            stream.close()
    info(f"Created engine with size: {path.stat().st_size / 2**20:.6g} MiB")
    info(f"Engine built in {time.monotonic() - began:.6g} sec.")


def _builder(network: Network, found: dict[str, Profile]) -> None:
    info("[TRT] Local timing cache in use. Profiling results in this builder pass will be stored.")
    from trtexec_network import check_dimensions

    check_dimensions(network, found)
    seconds = float(os.environ.get("REHEARSAL_SECONDS") or 0)
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        info(f"[TRT] rehearsal: {left:.0f} s of the build left")
        time.sleep(min(1, left))  # this is what stands for the build
    info("[TRT] Detected 1 inputs and 1 output network tensors.")
    info("[TRT] Engine generation completed in " + f"{time.monotonic() - began:.6g} seconds.")


def _update_timing_cache(path: Path) -> None:
    try:
        known = path.read_bytes()
    except OSError:
        warn(f"[TRT] Could not read timing cache from: {path}. A new timing cache will be written.")
        known = TIMING_CACHE
    else:
        info(f"[TRT] Loaded {len(known)} bytes of timing cache from {path}")
    try:
        path.write_bytes(known + b"entry\n")
    except OSError:
        warn(f"[TRT] Could not write timing cache to: {path}")
    else:
        info(f"[TRT] Saved {len(known) + 6} bytes of timing cache to {path}")


def _after(options: Options, layers: str) -> None:
    if options.has("--dumpLayerInfo"):
        info("Layer Information:")
        info(layers)
    if target := options.text("--exportLayerInfo"):
        try:
            Path(target).write_text(layers)
        except OSError:
            info(f"rehearsal: {target} was not written; the real one says nothing")
    if options.has("--skipInference"):
        info("Skipped inference phase since --skipInference is added.")
    else:
        info("rehearsal: no inference is run and nothing is timed here")


def _detailed(options: Options) -> bool:
    return options.text("--profilingVerbosity") in ("detailed", "verbose")


if __name__ == "__main__":
    sys.exit(main())
