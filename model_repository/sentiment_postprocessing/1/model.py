"""A network's scores in, label and probability out: bundle_serving.texts."""

from bundle_serving.step_reports import reported
from bundle_serving.texts import to_labels
from bundle_serving.triton import answer, array, parameter


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.labels = parameter(args, "labels").split(",")

    def execute(self, requests):
        return [answer(self.label, request) for request in requests]

    def label(self, request):
        return to_labels(array(request, "SCORES"), self.labels)
