"""Image files in, pixels and each picture's size out: bundle_serving.pictures."""

from bundle_serving.decoder import Decoder, gather_with_sizes
from bundle_serving.pictures import PictureError, Transform
from bundle_serving.repeated import may_be_repeated
from bundle_serving.step_reports import remark_picture, reported
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        transform = Transform.load(version_folder(args) / "transform.json")
        self.decoder = Decoder(transform, int(parameter(args, "threads")), remark_picture)

    def execute(self, requests):
        alone = len(requests) == 1
        pending = [
            self.decoder.begin(array(request, "FILE"), may_be_repeated(request), alone)
            for request in requests
        ]
        return [
            answer(gather_with_sizes, pictures, callers_faults=(PictureError,))
            for pictures in pending
        ]

    def finalize(self):
        self.decoder.close()
