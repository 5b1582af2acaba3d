"""WAV files in, windows of log-mel bands out: bundle_serving.sounds."""

from bundle_serving.sounds import Hearing, to_windows
from bundle_serving.step_reports import reported
from bundle_serving.triton import answer, array, version_folder
from bundle_serving.wav import SoundError


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.how = Hearing.load(version_folder(args) / "hearing.json")

    def execute(self, requests):
        return [answer(self.windows, request, callers_faults=(SoundError,)) for request in requests]

    def windows(self, request):
        return to_windows(array(request, "FILE"), self.how)
