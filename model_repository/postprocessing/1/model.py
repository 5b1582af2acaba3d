"""A network's scores in, probabilities out: bundle_serving.scores, on whichever side they lie."""

from bundle_serving.scores import softmax
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, compile_for_gpus, stays_on_gpu, tensor


@reported
class TritonPythonModel:
    def initialize(self, args):
        if stays_on_gpu(args):
            compile_for_gpus(softmax)

    def execute(self, requests):
        return [answer(probabilities, request) for request in requests]


def probabilities(request):
    return softmax(tensor(request, "INPUT_0"))
