"""Probabilities of frames in, smoothed over each stream's frames out: bundle_serving.smoothing."""

import numpy as np

from bundle_serving.smoothing import RULES, NoRoom, Rules, Streams
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, array, version_folder

CONTROLS = "BEGINS", "ENDS"


@reported
class TritonPythonModel:
    def initialize(self, args):
        # Explicit state: implicit state is of backends that call TRITONBACKEND_StateNew, and the
        # Python backend does not. In one process, so that it knows how many streams there are.
        self.streams = Streams(Rules.load(version_folder(args) / RULES))

    def execute(self, requests):
        return [answer(self.smooth, request, busy=(NoRoom,)) for request in requests]

    def smooth(self, request):
        begins, ends = (bool(array(request, name)[0, 0]) for name in CONTROLS)
        sequence, newest = request.correlation_id(), array(request, "INPUT_0")
        stream = self.streams.add(sequence, newest, begins=begins, ends=ends)
        frames = np.array([[stream.frames]], np.int32)
        return {"OUTPUT_0": stream.probabilities, "FRAMES": frames}
