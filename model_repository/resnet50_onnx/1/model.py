"""With STEPS=1: image files in, probabilities out, by the functions of the three steps
(bundle_serving.one_step); pixels in, scores out, as the network alone. Not used with STEPS=3."""

from bundle_serving.decoder import Decoder
from bundle_serving.identity import identity
from bundle_serving.networks import network_in
from bundle_serving.one_step import COMPUTE, DECODE, READ, OneStep
from bundle_serving.onnxruntime_engine import load_engine
from bundle_serving.own_steps import find_reading
from bundle_serving.pictures import PictureError, Transform
from bundle_serving.repeated import Repeated
from bundle_serving.step_reports import PartReports, remark_picture, remark_scores, rows_of
from bundle_serving.triton import (
    answer_allowed,
    answer_one_way,
    config_of,
    cores_of,
    parameter,
    version_folder,
)
from bundle_serving.work import Rows

FILES, PIXELS = ("INPUT", "OUTPUT"), ("input", "output")


class TritonPythonModel:
    def initialize(self, args):
        folder = version_folder(args)
        transform = Transform.load(folder / "transform.json")
        decoder = Decoder(transform, int(parameter(args, "decoding_threads")), remark_picture)
        self.engine = load_engine(network_in(folder), int(parameter(args, "threads")))
        self.engine.require(config_of(args, *PIXELS))
        self.cores = cores_of(args)
        self.repeated = Repeated()
        self.rows = Rows()
        read = find_reading(folder, parameter(args, "answers"))
        self.way = OneStep(decoder, self.scores, read)
        steps = parameter(args, "steps").split(",")
        parts = dict(zip((DECODE, COMPUTE, READ), steps, strict=True))
        self.reports = PartReports(args, parts, identity(folder))

    def execute(self, requests):
        with self.cores.computing():
            return answer_allowed(requests, self.refuse, self.answer)

    def refuse(self, request):
        return self.rows.too_many(rows_of(request))

    def answer(self, requests):
        ways = {FILES: self.way.of_files, PIXELS: self.way.of_pixels}
        return answer_one_way(requests, ways, self.reports, callers_faults=(PictureError,))

    def scores(self, pixels, may):
        results = self.repeated.rows(self.compute, {"input": pixels}, may)
        remark_scores(results)
        # A copy: the next inference overwrites it.
        return results["output"].copy()

    def compute(self, batch):
        with self.rows.computing(len(batch["input"])):
            return self.engine(batch, ["output"])

    def finalize(self):
        self.way.close()
