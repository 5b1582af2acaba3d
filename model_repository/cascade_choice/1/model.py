"""The small network's scores where it is sure, the large one's for the rest:
bundle_serving.cascade, by asking the model that the config names."""

from functools import partial

import numpy as np

from bundle_serving.cascade import Cascade
from bundle_serving.own_requests import own_requests
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer_together, array, ask, parameter

INPUTS, OUTPUTS = ("SCORES", "PIXELS"), ("OUTPUT", "ANSWERED_BY")


@reported
class TritonPythonModel:
    def initialize(self, args):
        first, then = parameter(args, "first"), parameter(args, "then")
        self.cascade = Cascade(first, then, float(parameter(args, "threshold")))

    def execute(self, requests):
        """What is passed on goes as one batch; if that fails, it fails no request without such.
        Our own requests go apart, so that they are known there too."""
        kinds = [self.kind(each) for each in requests]
        answers = {kind: iter(self.together(requests, kinds, kind)) for kind in {*kinds}}
        return [next(answers[kind]) for kind in kinds]

    def kind(self, request):
        scores = array(request, "SCORES")
        # What is no score, as anybody may send it here, goes apart: it fails alone.
        passes_on = bool(self.cascade.unsure(scores).any()) if np.isfinite(scores).all() else None
        return passes_on, request.request_id() if request in own_requests else ""

    def together(self, requests, kinds, kind):
        alike = [each for each, its in zip(requests, kinds, strict=True) if its == kind]
        return answer_together(alike, INPUTS, OUTPUTS, partial(self.compute, kind[1]))

    def compute(self, own_id, batch):
        def then(pixels):
            return ask(self.cascade.then, {"input": pixels}, "output", own_id)

        return self.cascade.answer(batch["SCORES"], batch["PIXELS"], then)
