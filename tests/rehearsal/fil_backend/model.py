"""The rehearsal's backend "fil": trees by treelite, the library that NVIDIA's loads them with, and
by its reference arithmetic, with which NVIDIA's computes on a CPU.

Which parameters there are, what they may say and what files and tensors are called is read from the
backend's own source (source.txt). Stricter than the real one, which passes over a parameter that it
does not know, and warns of one that was removed: those are refused.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# Where the image has it: the stub is isolated, and sees no PYTHONPATH.
sys.path.append(str(HERE / "wheel"))

import treelite  # noqa: E402

from bundle_serving.triton import answer_together, pb, version_folder  # noqa: E402

SOURCE = (HERE / "source.txt").read_text()
READ = re.compile(r'get_config_param<([\w:]+)>\(\s*"(\w+)"(,)?')
REMOVED = re.compile(r'\{"(\w+)", "\w+"\}|std::vector<std::string>\{"(\w+)", "(\w+)"\}')
FORMAT = re.compile(r'type_string == "(\w+)"\) \{\s*result = SerializationFormat::(\w+)')
FILE = re.compile(r'case SerializationFormat::(\w+):\s*path /= "([\w.]+)"')
TENSOR = re.compile(r'get_(?:input|output)<float>\(batch, "(\w+)"\)')
POSTPROCESSOR = re.compile(r'tl_pred_transform == std::string\{"(\w+)"\}')

PARAMETERS = {name: (kind, not default) for kind, name, default in READ.findall(SOURCE)}
GONE = {name for names in REMOVED.findall(SOURCE) for name in names if name}
FORMATS, FILES = dict(FORMAT.findall(SOURCE)), dict(FILE.findall(SOURCE))
INPUT, OUTPUT = TENSOR.findall(SOURCE)
POSTPROCESSORS = set(POSTPROCESSOR.findall(SOURCE))

NUMBER = {"float": float, "int": int, "std::size_t": int}
LAYOUTS = ("depth_first", "breadth_first", "layered", "layered_children_together")
MULTICLASS = 2
LOADERS = {
    "xgboost_json": lambda path: treelite.frontend.load_xgboost_model(path, format_choice="json"),
    "xgboost_ubj": lambda path: treelite.frontend.load_xgboost_model(path, format_choice="ubjson"),
    "lightgbm": treelite.frontend.load_lightgbm_model,
    "treelite": treelite.Model.deserialize,
}


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.read = _parameters(config)
        self.values = _values(config)
        kind = FORMATS[self.read["model_type"]]
        file = version_folder(args) / (config.get("default_model_filename") or FILES[kind])
        if not file.exists():
            raise pb.TritonModelException(f"Could not open model file {file}")
        try:
            self.forest = LOADERS[kind](str(file))
        except treelite.TreeliteError as fault:
            raise pb.TritonModelException(str(fault)) from None
        self._as_it_is_loaded()

    def _as_it_is_loaded(self):
        """tl_model.h, tl_utils.h, and nvforest's treelite_importer.hpp."""
        header = self.forest.get_header_accessor()
        self.classes = int(header.get_field("num_class")[0])
        if header.get_field("num_target")[0] != 1:
            raise pb.TritonModelException("Multi-target model not supported")
        if self.read.get("predict_proba") and header.get_field("task_type")[0] == MULTICLASS:
            apart = header.get_field("leaf_vector_shape")[1] == 1
            header.set_field("postprocessor", "softmax" if apart else "identity_multiclass")
        if header.get_field("postprocessor") not in POSTPROCESSORS:
            raise pb.TritonModelException("Unrecognized Treelite pred_transform string")

    def execute(self, requests):
        return answer_together(requests, [INPUT], [OUTPUT], self.compute)

    def compute(self, batch):
        rows = batch[INPUT]
        found = treelite.gtil.predict(self.forest, rows).reshape(len(rows), -1)
        return {OUTPUT: self._finished(found.astype(np.float32))}

    def _finished(self, found):
        """gpu_forest_model.h; a dimension of one is left out (rapids_triton's shared_state.hpp,
        squeeze_output)."""
        if self.read["is_classifier"] and not self.read.get("predict_proba"):
            one = self.classes == 1
            found = found > self.read["threshold"] if one else found.argmax(axis=1)[:, None]
        elif self.read["is_classifier"] and self.classes == 1 and self.values == 2:
            found = np.concatenate([1 - found, found], axis=1)
        if found.shape[1] != self.values:  # which would write past the output's end
            raise RuntimeError(f"rehearsal: {found.shape[1]} numbers for dims [ {self.values} ]")
        found = found.astype(np.float32)
        return found[:, 0] if self.values == 1 else found


def _parameters(config):
    """shared_state.h; how they are read, rapids_triton's shared_state.hpp."""
    given = {key: each["string_value"] for key, each in config.get("parameters", {}).items()}
    for key in given.keys() - PARAMETERS.keys():
        why = "was removed in 25.09" if key in GONE else "is none of the backend's"
        raise pb.TritonModelException(f"rehearsal: the parameter {key} {why}")
    read = {key: _value(key, text) for key, text in given.items()}
    of_classifiers = () if read.get("is_classifier") else ("threshold",)
    for key, (_, required) in PARAMETERS.items():
        if required and key not in read and key not in of_classifiers:
            raise pb.TritonModelException(f"Required parameter {key} not found in config")
    read.setdefault("model_type", "xgboost")
    if read["model_type"] not in FORMATS:
        raise pb.TritonModelException(
            f"{read['model_type']} not recognized as a valid serialization format."
        )
    if read.get("layout", LAYOUTS[0]) not in LAYOUTS:
        raise pb.TritonModelException(f"Unknown nvForest layout name: {read['layout']}")
    return read


def _value(key, text):
    kind, _ = PARAMETERS[key]
    if kind == "std::string":
        return text
    if kind == "bool":
        if text not in ("true", "false"):
            raise pb.TritonModelException(
                f"Expected 'true' or 'false' for parameter '{key}', got: '{text}'"
            )
        return text == "true"
    try:
        return NUMBER[kind](text)
    except ValueError:
        raise pb.TritonModelException(f"Bad input for parameter {key}") from None


def _values(config):
    (taken,), (given,) = config["input"], config["output"]
    for tensor, name in ((taken, INPUT), (given, OUTPUT)):
        if (tensor["name"], tensor["data_type"]) != (name, "TYPE_FP32"):
            raise pb.TritonModelException(f"rehearsal: {tensor['name']} is not {name} in TYPE_FP32")
    (values,) = given["dims"]
    return int(values)
