"""The files of a network: an ONNX file, or OpenVINO's graph with its weights beside it."""

from pathlib import Path

ONNX, IR, WEIGHTS = "model.onnx", "model.xml", "model.bin"


def is_ir(network: Path) -> bool:
    return network.suffix == ".xml"


def network_in(folder: Path) -> Path:
    found = folder / IR
    return found if found.exists() else folder / ONNX


def files_of(network: Path) -> list[Path]:
    return [network, network.with_name(WEIGHTS)] if network.name == IR else [network]
