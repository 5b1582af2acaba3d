"""The backend "onnxruntime" for servers without Triton's own: runs model.onnx with OpenVINO,
or model.xml, its own."""

import json
from functools import partial

import numpy as np

from bundle_serving import work
from bundle_serving.identity import identity
from bundle_serving.networks import network_in
from bundle_serving.onnxruntime_engine import load_engine, takes_missing
from bundle_serving.repeated import Repeated, may_be_repeated
from bundle_serving.step_reports import remark_scores, reported, rows_of
from bundle_serving.triton import (
    answer_allowed,
    answer_each,
    answer_together,
    array,
    give_way_if_unseen,
    parameter,
    version_folder,
)

# Of a network of texts (bundle_serving.texts).
TOKENS = "INPUT_IDS"


@reported
class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [tensor["name"] for tensor in config["input"]]
        self.outputs = [tensor["name"] for tensor in config["output"]]
        self.batched = config["max_batch_size"] > 0
        threads = int(parameter(args, "threads", "0"))
        folder = version_folder(args)
        # Triton names model.onnx where the config names nothing.
        named = folder / (config.get("default_model_filename") or "")
        network = named if named.is_file() else network_in(folder)
        self.engine = load_engine(network, threads)
        self.takes_missing = takes_missing(network)
        self.engine.require(config)
        give_way_if_unseen(args)
        self.repeated = Repeated()
        self.rows = work.Rows()
        # In a row, where an input may have any size; 0: an earlier release wrote the config.
        self.most_numbers = int(parameter(args, "most_numbers", "0"))
        # What its answers are reported with.
        self.network = identity(folder)

    def execute(self, requests):
        if not self.batched:
            return answer_each(requests, self.inputs, self.compute_alone)
        return answer_allowed(requests, self.refuse, self.together)

    def refuse(self, request):
        """Whoever asks the network itself has not passed the step before it."""
        if most := self.most_numbers:
            numbers = max(array(request, name).size for name in self.inputs)
            if reason := work.too_many_numbers(rows_of(request), numbers, most):
                return reason
        if TOKENS in self.inputs:
            return work.too_many_tokens(*array(request, TOKENS).shape)
        if not self.takes_missing and np.isnan(array(request, self.inputs[0])).any():
            return "a number is missing (NaN), which this model does not take; send all numbers"
        return self.rows.too_many(rows_of(request))

    def together(self, requests):
        may = [may_be_repeated(request) for request in requests for _ in range(rows_of(request))]
        compute = partial(self.compute, may)
        return answer_together(requests, self.inputs, self.outputs, compute)

    def compute(self, may, batch):
        results = self.repeated.rows(self.compute_new, batch, may)
        remark_scores(results)
        return results

    def compute_new(self, batch):
        with self.rows.computing(len(next(iter(batch.values())))):
            return self.engine(batch, self.outputs)

    def compute_alone(self, tensors):
        return self.engine.whole(tensors, self.outputs)
