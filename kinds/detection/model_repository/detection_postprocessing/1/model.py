"""A detector's answer and the pictures' sizes in, boxes out: bundle_serving.detection."""

from bundle_serving.detection import Detection
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.detection = Detection.load(version_folder(args), int(parameter(args, "side")))

    def execute(self, requests):
        return [answer(self.answer, request) for request in requests]

    def answer(self, request):
        return self.detection.answer(array(request, "ROWS"), array(request, "SIZE"))
