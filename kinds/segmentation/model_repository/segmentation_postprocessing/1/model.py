"""The class of each pixel in, the share of each class out: bundle_serving.segmentation."""

from bundle_serving.segmentation import Segmentation
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, array, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.segmentation = Segmentation.load(version_folder(args))

    def execute(self, requests):
        return [answer(self.segmentation.answer, array(request, "MASK")) for request in requests]
