"""A PyTorch module -> an ONNX file, checked and reproducible."""

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch

BATCH = torch.export.Dim("batch", min=1, max=1024)


def save(
    module: torch.nn.Module,
    examples: Mapping[str, torch.Tensor],
    dynamic: tuple[dict[int, Any], ...],
    output: str,
    path: Path,
) -> None:
    """`examples` maps the inputs' names to examples; `dynamic` is in the same order."""
    for each in module.modules():
        if hasattr(each, "inplace"):  # an in-place activation costs the exporter half a second
            each.inplace = False
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(examples.values()),
            path,
            input_names=list(examples),
            output_names=[output],
            dynamic_shapes=dynamic,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    graph = onnx.load(path)
    # The exporter's notes contain local paths, which would change the hash.
    for node in graph.graph.node:
        del node.metadata_props[:]
    onnx.save(graph, path)
    onnx.checker.check_model(path, full_check=True)


def trace_to_file(module: torch.nn.Module, name: str, example: torch.Tensor, path: Path) -> None:
    """By the exporter before, for what the new one cannot do; of any batch."""
    # It prints the whole graph that it refuses, whatever `verbose` says.
    torch._C._jit_onnx_log = lambda *_: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            path,
            dynamo=False,
            input_names=[name],
            output_names=["output"],
            dynamic_axes={name: {0: "batch"}, "output": {0: "batch"}},
        )
