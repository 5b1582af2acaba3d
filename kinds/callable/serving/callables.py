"""Functions of the user's own, bound as PyTriton binds them: what a file binds, and how an instance
of it is called. No Triton here: a file can be tried, and tested, without a server.

    Instance(load(Path("mine.py"))["mine"]).ask(text="What a day!")
"""

import asyncio
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pytriton import triton
from pytriton.decorators import TritonContext
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.types import Request
from pytriton.proxy.validators import TritonResultsValidator
from tritonclient.utils import np_to_triton_dtype

from bundle_serving import NAME
from bundle_serving.own_steps import find_line, one_line

from .values import NotAValue, Spec, anything, rows

TENSOR_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
ENDED = object()

Tensors = dict[str, NDArray[Any]]


class NotServed(Exception):
    """What a file binds cannot be served; the message is the cause and the remedy."""


@dataclass(frozen=True)
class Bound:
    """What one call of `triton.bind` said."""

    name: str
    callables: Sequence[Callable[[list[Request]], Any]]  # one for each instance
    inputs: Sequence[Spec]
    outputs: Sequence[Spec]
    config: ModelConfig
    strict: bool
    example: Tensors  # one row of each input

    @property
    def most(self) -> int:
        """The largest batch; 0: it takes none."""
        return int(self.config.max_batch_size) if self.config.batching else 0

    @property
    def question(self) -> Tensors:
        return {name: self.whole(row) for name, row in self.example.items()}

    def whole(self, row: NDArray[Any]) -> NDArray[Any]:
        return row[None] if self.most else row


class Bindings:
    """In the place of PyTriton's Triton, of which it has what a program calls."""

    def __init__(self) -> None:
        self.bound: dict[str, Bound] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, *_: object, **__: object) -> None:
        """Where it runs, the bundle decides."""

    serve = stop = run

    def bind(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: Sequence[str] | None = None,
    ) -> None:
        """PyTriton's arguments; versions and traces are the bundle's own."""
        if not re.fullmatch(NAME, model_name):
            raise NotServed(
                f"model_name={model_name} is not a valid name; use letters, digits, _ and -"
            )
        if model_name.casefold() in map(str.casefold, self.bound):
            raise NotServed(f"{model_name} is bound twice; choose another model_name")
        callables = [infer_func] if callable(infer_func) else list(infer_func)
        if not (callables and all(map(callable, callables))):
            raise NotServed(f"{model_name}: infer_func is no function; give one, or a list of them")
        config = config or ModelConfig()
        if config.batching and config.max_batch_size < 1:
            raise NotServed(
                f"{model_name}: max_batch_size={config.max_batch_size}; give 1 or more, or"
                " batching=False"
            )
        taken = _specs(model_name, "INPUT", inputs)
        given = _specs(model_name, "OUTPUT", outputs)
        if both := {spec.name for spec in taken} & {spec.name for spec in given}:
            raise NotServed(f"{model_name}: {min(both)} is an input and an output; rename one")
        example = {spec.name: anything(spec) for spec in taken}
        self.bound[model_name] = Bound(model_name, callables, taken, given, config, strict, example)


def load(file: Path) -> dict[str, Bound]:
    """What a file binds, by name: in a function bind(triton), or as a program for PyTriton does,
    whose server is not started."""
    bindings = Bindings()
    with _faults_of(file), _in_place_of_pytritons(bindings, file):
        module = _execute_file(file, file.stem)
        if callable(bind := getattr(module, "bind", None)):
            bind(bindings)
        elif not bindings.bound:
            module = _execute_file(file, "__main__")
    if not bindings.bound:
        raise NotServed(
            f"{file.name} binds nothing; call triton.bind in a function bind(triton), as the file"
            " does that make add-callable NEW=another.py writes"
        )
    examples = getattr(module, "EXAMPLES", {})
    if not isinstance(examples, Mapping):
        raise NotServed('EXAMPLES is no dict; give one: {"mine": {"text": "What a day!"}}')
    if unknown := sorted(examples.keys() - bindings.bound.keys()):
        raise NotServed(f"EXAMPLES has one for {unknown[0]}, which is not bound; remove it")
    return {
        name: _with_example(bound, examples[name]) if name in examples else bound
        for name, bound in bindings.bound.items()
    }


class Instance:
    """One of the callables, as one of the server's processes runs it."""

    def __init__(self, bound: Bound, number: int = 0) -> None:
        self._callable = bound.callables[number]
        self._bound = replace(bound, callables=[])  # the others may be large
        config = TritonModelConfig(
            model_name=bound.name,
            batching=bound.most > 0,
            max_batch_size=bound.most,
            batcher=bound.config.batcher,
            decoupled=bound.config.decoupled,
            inputs=_pytritons(bound.inputs),
            outputs=_pytritons(bound.outputs),
        )
        self._validator = TritonResultsValidator(config, bound.strict)
        # Where PyTriton's decorators look for it.
        context = TritonContext()
        context.model_configs[self._callable] = config
        owner: Any = getattr(self._callable, "__self__", self._callable)
        owner.__triton_context__ = context

    def __call__(self, requests: list[Request]) -> Iterator[list[Tensors]]:
        """The answers to requests that are computed together: those of one that is decoupled may
        have several, one after the other."""
        for number, each in enumerate(self._call(requests)):
            if number and not self._bound.config.decoupled:
                raise ValueError("it gave several answers, but is not bound as decoupled")
            self._validator.validate_responses(requests, each)
            yield [self._complete(answer) for answer in each]

    def _call(self, requests: list[Request]) -> Iterator[Any]:
        """What it gives, whichever of PyTriton's four kinds of function it is."""
        given = self._callable(requests)
        if inspect.isgenerator(given):
            yield from given
        elif inspect.isasyncgen(given):
            while (each := self._loop.run_until_complete(anext(given, ENDED))) is not ENDED:
                yield each
        else:
            yield self._loop.run_until_complete(given) if inspect.isawaitable(given) else given

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """One for all requests: a connection that was opened for one may serve the next."""
        return asyncio.new_event_loop()

    def ask(self, **values: Any) -> Tensors:
        """One row in, the first row out: for tests."""
        question = {
            name: self._bound.whole(row) for name, row in rows(self._bound.inputs, values).items()
        }
        ((answer,), *_) = self([Request(question)])
        return {name: tensor[0] if self._bound.most else tensor for name, tensor in answer.items()}

    def _complete(self, answer: Tensors) -> Tensors:
        """With texts as Triton takes them."""
        if missing := [spec.name for spec in self._bound.outputs if spec.name not in answer]:
            raise ValueError(f"it gave no {missing[0]}")
        return {spec.name: _as_sent(answer[spec.name]) for spec in self._bound.outputs}


def _execute_file(file: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    if name == file.stem:
        sys.modules[name] = module  # where dataclasses and pickle look for it
    spec.loader.exec_module(module)
    return module


@contextmanager
def _in_place_of_pytritons(bindings: Bindings, file: Path) -> Iterator[None]:
    kept = triton.Triton, sys.argv
    triton.Triton, sys.argv = lambda *_, **__: bindings, [str(file)]
    try:
        yield
    finally:
        triton.Triton, sys.argv = kept


@contextmanager
def _faults_of(file: Path) -> Iterator[None]:
    try:
        yield
    except NotServed:
        raise
    except (Exception, SystemExit) as fault:
        place = f"{file.name}{find_line(str(file), fault)}"
        raise NotServed(f"{place}: {one_line(fault)}; correct it") from fault


def _specs(model: str, default: str, tensors: Sequence[Tensor]) -> list[Spec]:
    """Tensors without a name get PyTriton's."""
    specs = [_spec(model, each, f"{default}_{number}") for number, each in enumerate(tensors, 1)]
    if not specs:
        raise NotServed(f"{model} has no {default.lower()}s; give one Tensor at least")
    if len({spec.name for spec in specs}) < len(specs):
        raise NotServed(f"{model} has two {default.lower()}s of one name; rename one")
    return specs


def _spec(model: str, tensor: Tensor, default: str) -> Spec:
    name = tensor.name or default
    if not TENSOR_NAME.fullmatch(name):
        raise NotServed(
            f"{model}: {name!r} is not a valid name of a Tensor; use letters, digits, _"
        )
    if tensor.optional:
        raise NotServed(f"{model}: {name} is optional, which pipelines do not have; let it be sent")
    dims = tuple(tensor.shape)
    if not dims or not all(isinstance(size, int) and (size > 0 or size == -1) for size in dims):
        raise NotServed(f"{model}: {name} has the shape {dims}; give sizes, or -1 for any: (1,)")
    try:
        datatype = np_to_triton_dtype(np.dtype(tensor.dtype))
    except TypeError:
        datatype = None
    if datatype is None:
        kind = getattr(tensor.dtype, "__name__", tensor.dtype)
        raise NotServed(f"{model}: {name} is of {kind}; take bytes, or a number type of numpy")
    return Spec(name, str(datatype), dims)


def _pytritons(specs: Sequence[Spec]) -> list[TensorSpec]:
    return [TensorSpec(spec.name, tuple(spec.dims), anything(spec).dtype.type) for spec in specs]


def _with_example(bound: Bound, values: Any) -> Bound:
    try:
        return replace(bound, example=rows(bound.inputs, values))
    except NotAValue as fault:
        raise NotServed(f"EXAMPLES of {bound.name}: {fault}; correct it") from None


def _as_sent(tensor: NDArray[Any]) -> NDArray[Any]:
    if tensor.dtype.kind == "U":
        tensor = np.char.encode(tensor, "utf-8")
    return tensor.astype(np.object_) if tensor.dtype.kind == "S" else tensor
