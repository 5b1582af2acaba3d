"""A network's scores in, label and probability out: bundle_serving.texts."""

from bundle_serving.step_reports import find_silent_network, remark_scores, reported
from bundle_serving.texts import to_labels
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.labels = parameter(args, "labels").split(",")
        self.network = find_silent_network(version_folder(args))

    def execute(self, requests):
        return [answer(self.label, request) for request in requests]

    def label(self, request):
        scores = array(request, "SCORES")
        if self.network:
            remark_scores({"scores": scores})
        return to_labels(scores, self.labels)
