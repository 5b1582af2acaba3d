"""OpenVINO's IR: a graph in an .xml file, and its weights in a .bin beside it.

What it takes and gives is read off the .xml alone, as an ONNX graph of the same operators without
weights: OpenVINO is not on every machine that is asked to add one.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from scripts.base.errors import UserError

# What the two call differently, of what tells how an output is to be read.
OPERATORS = {
    **{"SoftMax": "Softmax", "Clamp": "Clip", "Divide": "Div", "Minimum": "Min"},
    **{"Convert": "Cast", "Maximum": "Max", "FakeQuantize": "QuantizeLinear"},
}
KINDS = {"FP64": "DOUBLE", "FP32": "FLOAT", "FP16": "FLOAT16", "BF16": "BFLOAT16"}

Port = tuple[str, str]  # of a layer: the numbers of both


def outline(path: Path) -> Any:
    from onnx import helper

    net = _parse_xml(path)
    layers = [*net.iterfind("layers/layer")]
    outputs = dict(each for layer in layers for each in _outputs(layer))
    edges = net.iterfind("edges/edge")
    sources = {_read_port(edge, "to"): _read_port(edge, "from") for edge in edges}
    names = {port: _name(port, described) for port, described in outputs.items()}
    taken, given, nodes = [], [], []
    for layer in layers:
        ports = layer.iterfind("input/port")
        from_ports = (sources.get((layer.get("id", ""), port.get("id", ""))) for port in ports)
        inputs = [port for port in from_ports if port in outputs]
        own = [port for port, _ in _outputs(layer)]
        match layer.get("type", ""):
            case "Parameter":
                taken += [_tensor(names[port], outputs[port]) for port in own]
            case "Result":
                given += [_tensor(names[port], outputs[port]) for port in inputs]
            case kind:
                taking, giving = ([names[port] for port in ports] for ports in (inputs, own))
                known = _read_clamp(layer) if kind == "Clamp" else {}
                nodes.append(helper.make_node(OPERATORS.get(kind, kind), taking, giving, **known))
    return helper.make_model(helper.make_graph(nodes, path.stem, taken, given))


def _read_clamp(layer: ElementTree.Element) -> dict[str, float]:
    described = layer.find("data")
    known = {} if described is None else described.attrib
    return {name: float(known[name]) for name in ("min", "max") if name in known}


def weights(path: Path, data: Mapping[str, Path]) -> Path:
    """Its .bin, which `data` alone has, and which must be whole."""
    if not data:
        name = path.with_suffix(".bin").name
        raise UserError(
            f"{path.name} keeps its weights in {name}, which is not beside it",
            "put it there, or save both again: openvino.save_model",
        )
    constants = _parse_xml(path).iterfind("layers/layer[@type='Const']/data")
    try:
        ends = [int(each.get("offset", 0)) + int(each.get("size", 0)) for each in constants]
    except ValueError:
        raise _unreadable(path) from None
    (found,) = data.values()
    if max(ends, default=0) > found.stat().st_size:
        raise UserError(f"{found.name} is too short for {path.name}", "copy both again")
    return found


def _parse_xml(path: Path) -> ElementTree.Element:
    try:
        net = ElementTree.parse(path).getroot()
        if net.tag == "net" and net.find("layers/layer") is not None:
            return net
    except OSError as fault:
        raise UserError(f"no network at {path} ({fault.strerror})", "name an .xml file") from None
    except (ElementTree.ParseError, ValueError):  # the latter of its encoding
        pass
    raise _unreadable(path)


def _unreadable(path: Path) -> UserError:
    return UserError(
        f"{path} cannot be read as OpenVINO's IR", "name the .xml that openvino.save_model wrote"
    )


def _read_port(edge: ElementTree.Element, end: str) -> Port:
    return edge.get(f"{end}-layer", ""), edge.get(f"{end}-port", "")


def _outputs(layer: ElementTree.Element) -> list[tuple[Port, ElementTree.Element]]:
    ports = layer.iterfind("output/port")
    return [((layer.get("id", ""), port.get("id", "")), port) for port in ports]


def _name(port: Port, described: ElementTree.Element) -> str:
    """The first that it has, in which a comma stands behind a backslash; old files have none."""
    first = re.split(r"(?<!\\),", described.get("names", ""))[0]
    return first.replace("\\,", ",") or "/".join(port)


def _tensor(name: str, port: ElementTree.Element) -> Any:
    from onnx import TensorProto, helper

    kind = port.get("precision", "")
    whole = re.sub(r"^I(?=\d)", "INT", re.sub(r"^U(?=\d)", "UINT", kind))
    known = dict(TensorProto.DataType.items())
    sizes = [dim.text or "" for dim in port.iterfind("dim")]
    shape = [int(size) if size.isdecimal() else None for size in sizes]  # -1 is any
    return helper.make_tensor_value_info(name, known.get(KINDS.get(kind, whole), 0), shape)
