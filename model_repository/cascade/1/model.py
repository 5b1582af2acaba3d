"""A small network where it is sure, a large one for the rest: bundle_serving.cascade, by asking
the models that the config names."""

import asyncio

from bundle_serving.cascade import Named, classify
from bundle_serving.triton import answer_async, array, ask, parameter


class TritonPythonModel:
    def initialize(self, args):
        self.preprocessing = parameter(args, "preprocessing")
        self.first = network(parameter(args, "first"))
        self.then = network(parameter(args, "then"))
        self.threshold = float(parameter(args, "threshold"))

    async def execute(self, requests):
        # All at once, so that the models asked see the batch that came here.
        return await asyncio.gather(*(answer_async(self.cascade, each) for each in requests))

    async def cascade(self, request):
        files = array(request, "INPUT")
        pixels = await ask(self.preprocessing, {"INPUT_0": files}, "OUTPUT_0")
        return await classify(pixels, self.first, self.then, self.threshold)


def network(model):
    async def scores(pixels):
        return await ask(model, {"input": pixels}, "output")

    return Named(model, scores)
