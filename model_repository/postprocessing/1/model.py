"""A network's scores in, probabilities out: bundle_serving.scores, on whichever side they lie."""

from bundle_serving.own_steps import find_reading
from bundle_serving.step_reports import find_silent_network, remark_scores, reported
from bundle_serving.triton import (
    answer,
    compile_for_gpus,
    parameter,
    stays_on_gpu,
    tensor,
    version_folder,
)


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.read = find_reading(version_folder(args), parameter(args, "answers"))
        self.network = find_silent_network(version_folder(args))
        if stays_on_gpu(args):
            compile_for_gpus(self.read, args)

    def execute(self, requests):
        return [answer(self.probabilities, request) for request in requests]

    def probabilities(self, request):
        scores = tensor(request, "INPUT_0")
        if self.network:
            remark_scores({"scores": scores})
        return self.read(scores)
