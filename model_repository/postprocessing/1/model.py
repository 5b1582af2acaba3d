"""A network's scores in, probabilities out: bundle_serving.scores."""

from bundle_serving.scores import softmax
from bundle_serving.triton import answer, array


class TritonPythonModel:
    def execute(self, requests):
        return [answer(softmax, array(request, "INPUT_0")) for request in requests]
