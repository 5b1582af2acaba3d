"""A network's scores in, probabilities out: bundle_serving.scores, on whichever side they lie."""

from bundle_serving.scores import softmax
from bundle_serving.triton import answer, tensor


class TritonPythonModel:
    def execute(self, requests):
        return [answer(probabilities, request) for request in requests]


def probabilities(request):
    return softmax(tensor(request, "INPUT_0"))
