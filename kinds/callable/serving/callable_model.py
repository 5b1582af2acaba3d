"""A function of the user's own as a model of Triton's python backend. Imported by model.py only."""

import json
import os
import threading
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb
from pytriton.exceptions import PyTritonBadParameterError, PyTritonUnrecoverableError
from pytriton.proxy.types import Request

from bundle_serving.own_steps import one_line, packages_beside, use_packages
from bundle_serving.process.server_log import log_traceback
from bundle_serving.step_reports import reported
from bundle_serving.triton import failure, parameter, version_folder

from .callables import Instance, Tensors, load

FILE = "function.py"
# After an unrecoverable error: until its answer is on the way.
END_S = 0.2


@reported
class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        folder = version_folder(args)
        use_packages(packages_beside(folder))
        bound = load(folder / FILE)[parameter(args, "callable")]
        *_, number = args["model_instance_name"].rpartition("_")
        self._name = bound.name
        self._instance = Instance(bound, int(number))
        self._decoupled = bound.config.decoupled
        for _ in self._instance([Request(bound.question)]):
            pass  # it answers its example, or is not loaded

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        if self._decoupled:
            self._send([(each.get_response_sender(), _request(each)) for each in requests])
            return None
        return [_response(each) for each in self._outcomes([_request(each) for each in requests])]

    def _send(self, asked: Sequence[tuple[Any, Request]]) -> None:
        """As many answers as there are, each when it is there. If several requests fail together
        before the first answer, each is asked alone."""
        began = False
        try:
            for answers in self._instance([request for _, request in asked]):
                for (sender, _), answer in zip(asked, answers, strict=True):
                    sender.send(_response(answer))
                    began = True
        except Exception as fault:
            if len(asked) > 1 and not began and not isinstance(fault, PyTritonUnrecoverableError):
                for each in asked:
                    self._send([each])
                return
            for sender, _ in asked:
                sender.send(_response(self._refusal(fault)))
        for sender, _ in asked:
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _outcomes(self, requests: list[Request]) -> list[Tensors | Exception]:
        """Of each request its answer, or why there is none. If several fail together, each is asked
        alone, so that no caller gets another one's error."""
        try:
            (answers,) = self._instance(requests)
            return list(answers)
        except Exception as fault:
            if len(requests) == 1 or isinstance(fault, PyTritonUnrecoverableError):
                return [self._refusal(fault)] * len(requests)
            return [outcome for each in requests for outcome in self._outcomes([each])]

    def _refusal(self, fault: Exception) -> Exception:
        """Without its traceback, which would keep the request's tensors. Of an unrecoverable error
        the process ends; the keeper then reloads the model."""
        log_traceback(fault)
        if isinstance(fault, PyTritonUnrecoverableError):
            threading.Timer(END_S, os._exit, [1]).start()
        kind = Refused if isinstance(fault, PyTritonBadParameterError) else RuntimeError
        return kind(f"{self._name}: {one_line(fault)}")


class Refused(Exception):
    """The caller's fault."""


def _request(request: Any) -> Request:
    tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    return Request(tensors, json.loads(request.parameters() or "{}"))


def _response(outcome: Tensors | Exception) -> Any:
    if isinstance(outcome, Exception):
        return failure(outcome, isinstance(outcome, Refused))
    return pb.InferenceResponse([pb.Tensor(name, tensor) for name, tensor in outcome.items()])
