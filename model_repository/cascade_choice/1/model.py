"""The small network's scores where it is sure, the large one's for the rest:
bundle_serving.cascade, by asking the model that the config names."""

from bundle_serving.cascade import Cascade
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer_together, array, ask, parameter

INPUTS, OUTPUTS = ("SCORES", "PIXELS"), ("OUTPUT", "ANSWERED_BY")


@reported
class TritonPythonModel:
    def initialize(self, args):
        first, then = parameter(args, "first"), parameter(args, "then")
        self.cascade = Cascade(
            first,
            then,
            float(parameter(args, "threshold")),
            lambda pixels: ask(then, {"input": pixels}, "output"),
        )

    def execute(self, requests):
        """What is passed on goes as one batch; if that fails, it fails no request without such."""
        passes_on = [self.cascade.unsure(array(each, "SCORES")).any() for each in requests]
        answers = {kind: iter(self.together(requests, passes_on, kind)) for kind in (False, True)}
        return [next(answers[bool(each)]) for each in passes_on]

    def together(self, requests, passes_on, kind):
        alike = [each for each, passes in zip(requests, passes_on, strict=True) if passes == kind]
        return answer_together(alike, INPUTS, OUTPUTS, self.compute) if alike else []

    def compute(self, batch):
        return self.cascade.answer(batch["SCORES"], batch["PIXELS"])
