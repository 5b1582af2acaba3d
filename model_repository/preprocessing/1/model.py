"""Image files in, pixels out: bundle_serving.pictures, for every picture of a batch at once."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from bundle_serving.pictures import PictureError, Transform, check_together, to_pixels
from bundle_serving.repeated import Repeated, may_be_repeated
from bundle_serving.step_reports import remark_picture, reported
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.transform = Transform.load(version_folder(args) / "transform.json")
        self.repeated = Repeated()
        # Pillow lets go of the interpreter's lock while it decodes and resizes.
        self.pool = ThreadPoolExecutor(int(parameter(args, "threads")))

    def execute(self, requests):
        pending = [
            self.pending(array(request, "INPUT_0"), may_be_repeated(request))
            for request in requests
        ]
        return [answer(gather, pictures, callers_faults=(PictureError,)) for pictures in pending]

    def pending(self, pictures, may):
        """A result for each, or the one fault of all."""
        try:
            check_together(pictures, self.transform)
        except PictureError as fault:
            refused = Future()
            refused.set_exception(fault)
            return [refused]
        return [self.pool.submit(self.pixels, picture, may) for picture in pictures]

    def pixels(self, picture, may):
        def decoded():
            return to_pixels(picture, self.transform, remark_picture)

        return self.repeated.row(decoded, picture, may)

    def finalize(self):
        self.pool.shutdown()


def gather(pictures):
    return np.stack([picture.result() for picture in pictures])
