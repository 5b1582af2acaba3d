"""Arrays of pixels in, squares out: bundle_serving.arrays."""

from bundle_serving.arrays import ArrayError, Squares, to_squares
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, array, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.how = Squares.load(version_folder(args) / "squares.json")

    def execute(self, requests):
        return [
            answer(self.squares, request, output="pre_output", callers_faults=(ArrayError,))
            for request in requests
        ]

    def squares(self, request):
        return to_squares(array(request, "pre_input"), self.how)
