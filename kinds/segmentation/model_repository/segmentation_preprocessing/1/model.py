"""Image files in, pixels out: bundle_serving.pictures, for every picture of a batch at once."""

from bundle_serving.decoder import Decoder, gather
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
            self.decoder.begin(array(request, "INPUT_0"), may_be_repeated(request), alone)
            for request in requests
        ]
        return [answer(gather, pictures, callers_faults=(PictureError,)) for pictures in pending]

    def finalize(self):
        self.decoder.close()
