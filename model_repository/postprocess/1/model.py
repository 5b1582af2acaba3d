"""A network's scores in, the likeliest classes out: bundle_serving.arrays."""

from bundle_serving.arrays import to_answers
from bundle_serving.step_reports import find_silent_network, remark_scores, reported
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        self.names = (version_folder(args) / "labels.txt").read_text().splitlines()
        self.most = int(parameter(args, "answers"))
        self.network = find_silent_network(version_folder(args))

    def execute(self, requests):
        return [answer(self.answers, request, output="post_output") for request in requests]

    def answers(self, request):
        scores = array(request, "post_input")
        if self.network:
            remark_scores({"scores": scores})
        return to_answers(scores, self.names, self.most)
