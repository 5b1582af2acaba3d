"""Functions of the user's own: what a file may bind, and what is refused, each in one line."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytriton.proxy.types import Request

from bundle_serving import infer
from kinds.callable import add_callable
from kinds.callable import describe as step
from kinds.callable.recipe import Function
from kinds.callable.serving.callables import Instance, NotServed, load
from kinds.callable.serving.values import NotAValue, Spec, anything, row, rows
from scripts.base.errors import UserError
from scripts.base.lock import OF_ADDITIONS, find_holder
from scripts.repository import own_pipelines
from tests.project import ROOT

HEAD = """
import numpy as np
from pytriton.decorators import batch, sample
from pytriton.model_config import ModelConfig, Tensor

def tensor(name="x", dtype=np.float32, shape=(1,), **more):
    return Tensor(name=name, dtype=dtype, shape=shape, **more)

@batch
def f(x):
    return [x]
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(HEAD + text)
    return path


def bound(folder: Path, *arguments: str, more: str = "") -> Path:
    """A file that binds with these arguments, after the name and the function."""
    given = ", ".join(arguments or (X, Y))
    return file_of(folder, f"def bind(triton):\n    triton.bind('mine', f, {given})\n{more}")


def instance(file: Path) -> Instance:
    return Instance(load(file)["mine"])


def test_the_template_and_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = add_callable.write_new("word_count.py")
    assert [path.name for path in written] == ["word_count.py", "test_word_count.py"]
    assert "mine" not in (tmp_path / "word_count.py").read_text()
    command = [sys.executable, "-m", "unittest", "test_word_count"]
    environment = {"PYTHONPATH": f"{ROOT / 'serving'}"}
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 0
    for name in ("word_count.py", "two-words.py", "def.py", "words"):
        with pytest.raises(UserError):
            add_callable.write_new(name)


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(UserError, match=r"photo\.jpg is no Python file"):
        add_callable.add_functions(tmp_path / "photo.jpg")


def test_one_command_adds_functions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of one name, the one that fails would remove what the other one wrote."""

    def look(*_: object) -> None:
        assert find_holder(OF_ADDITIONS)
        raise UserError("mine already exists", "")

    monkeypatch.setattr(add_callable, "ensure_server", lambda: None)
    monkeypatch.setattr(add_callable, "_describe_file", lambda *_: {"mine": {}})
    monkeypatch.setattr(add_callable, "_pipeline", lambda name, *_: SimpleNamespace(name=name))
    monkeypatch.setattr(own_pipelines, "require_unused", look)
    (file := tmp_path / "mine.py").touch()
    with pytest.raises(UserError, match="mine already exists"):
        add_callable.add_functions(file)


BROKEN = {
    "x = 1 +": "mine.py, line 12: SyntaxError: invalid syntax",
    "import no_such_package": "mine.py, line 12: ModuleNotFoundError",
    "raise SystemExit(3)": "mine.py, line 12: SystemExit: 3",
    "": "mine.py binds nothing",
    "def bind(triton): pass": "mine.py binds nothing",
    "def bind(triton): triton.bind('a')": "mine.py, line 12: TypeError",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_binds_nothing_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotServed) as refused:
        load(file_of(tmp_path, text))
    assert str(refused.value).startswith(BROKEN[text])
    assert "\n" not in str(refused.value) and "; " in str(refused.value)


# As PyTriton's own examples are written.
PROGRAM = """
import argparse
from pytriton.triton import Triton, TritonConfig

def main():
    argparse.ArgumentParser().parse_args()
    with Triton(config=TritonConfig(http_port=8000)) as triton:
        triton.bind("mine", f, [tensor()], [tensor("y")])
        triton.serve()
"""


@pytest.mark.parametrize("started", ["main()", "if __name__ == '__main__':\n    main()"])
def test_a_program_for_pytriton_is_taken_as_it_is(tmp_path: Path, started: str) -> None:
    assert instance(file_of(tmp_path, f"{PROGRAM}\n{started}\n")).ask(x=2)["y"].tolist() == [2]


@pytest.mark.parametrize("name", ["Linear", "ModelName", "Identity", "GPT-2_xl"])
def test_names_as_programs_for_pytriton_have_them(tmp_path: Path, name: str) -> None:
    binding = f"triton.bind({name!r}, f, [tensor()], [tensor('y')])"
    file = file_of(tmp_path, f"def bind(triton):\n    {binding}\n")
    assert [*load(file)] == [name]
    again = binding.replace(name, name.lower())
    with pytest.raises(NotServed, match="bound twice"):
        load(file_of(tmp_path, f"def bind(triton):\n    {binding}\n    {again}\n"))


X, Y = "[tensor()]", "[tensor(name='y')]"
REFUSED = {
    ("[tensor(dtype=str)]", Y): "mine: x is of str; take bytes",
    ("[tensor(dtype=np.complex64)]", Y): "mine: x is of complex64; take bytes",
    ("[tensor(dtype='nothing')]", Y): "mine: x is of nothing; take bytes",
    ("[tensor(shape=())]", Y): "mine: x has the shape (); give sizes",
    ("[tensor(shape=(0,))]", Y): "mine: x has the shape (0,); give sizes",
    ("[tensor(optional=True)]", Y): "mine: x is optional",
    ("[tensor(name='a b')]", Y): "mine: 'a b' is not a valid name",
    ("[]", Y): "mine has no inputs",
    (X, "[tensor(), tensor()]"): "mine has two outputs of one name",
    (X, X): "mine: x is an input and an output",
    (X, Y, "config=ModelConfig(max_batch_size=0)"): "mine: max_batch_size=0",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_a_signature_that_cannot_be_served_is_refused(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(NotServed) as refused:
        load(bound(tmp_path, *arguments))
    assert str(refused.value).startswith(REFUSED[arguments])


def test_names_examples_and_defaults(tmp_path: Path) -> None:
    more = "EXAMPLES = {'mine': {'INPUT_1': [1, 2]}}"
    unnamed = "[tensor(name=None, shape=(-1,), dtype=np.dtype('int8'))]"
    found = load(bound(tmp_path, unnamed, "[tensor(name=None)]", more=more))["mine"]
    assert [str(each) for each in found.inputs] == ["INT8 [-1]"]
    assert found.outputs[0].name == "OUTPUT_1" and found.most == 4
    assert found.question["INPUT_1"].tolist() == [[1, 2]]
    no_rows = "{'mine': {'y': 1}}", "{'mine': {'x': 'a'}}", "{'other': {}}", "{'mine': 3}", "[3]"
    for wrong in no_rows:
        with pytest.raises(NotServed, match="EXAMPLES"):
            load(bound(tmp_path, more=f"EXAMPLES = {wrong}"))


ANSWERS = {
    "[x]": "",
    "{'x': x}": "output `x` is not defined",
    "{}": "it gave no y",
    "{'y': np.zeros((1, 2), np.float32)}": "has invalid shapes",
    "{'y': x.astype(np.int64)}": "has invalid type",
    "3": "Unsupported output type",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_are_checked(tmp_path: Path, answer: str) -> None:
    text = f"@batch\ndef f(x):\n    return {answer}\n"
    binding = bound(tmp_path, X, Y, "strict=True").read_text().removeprefix(HEAD)
    tried = instance(file_of(tmp_path, text + binding))
    if not ANSWERS[answer]:
        assert tried.ask(x=2)["y"].tolist() == [2]
        return
    with pytest.raises(Exception, match=ANSWERS[answer]) as fault:
        tried.ask(x=2)
    assert "\n" not in str(fault.value)


def test_texts_and_no_batch(tmp_path: Path) -> None:
    text = """
@sample
def f(x):
    return {"y": np.array([text.decode().upper() for text in x])}

def bind(triton):
    text = {"dtype": bytes, "shape": (-1,)}
    config = ModelConfig(batching=False)
    triton.bind("mine", f, [tensor(**text)], [tensor("y", **text)], config=config, strict=True)
"""
    answer = instance(file_of(tmp_path, text)).ask(x=["ä", "b"])["y"]
    assert answer.tolist() == ["Ä".encode(), b"B"]


KINDS = {
    "def f(requests):\n    return ANSWER": 1,
    "def f(requests):\n    yield ANSWER\n    yield ANSWER": 2,
    "async def f(requests):\n    await asyncio.sleep(0)\n    return ANSWER": 1,
    "async def f(requests):\n    yield ANSWER\n    await asyncio.sleep(0)\n    yield ANSWER": 2,
}


@pytest.mark.parametrize("function", KINDS)
def test_all_kinds_of_function_that_pytriton_takes(tmp_path: Path, function: str) -> None:
    answer = "[{'y': each['x']} for each in requests]"
    text = "import asyncio\n" + function.replace("ANSWER", answer)
    binding = f"triton.bind('mine', f, {X}, {Y}, config=ModelConfig(decoupled=True))"
    tried = instance(file_of(tmp_path, f"{text}\ndef bind(triton):\n    {binding}\n"))
    for number in (2, 3):
        answers = list(tried([Request({"x": np.array([[number]], np.float32)})]))
        assert [each[0]["y"].tolist() for each in answers] == [[[number]]] * KINDS[function]


def test_what_a_recipe_keeps_of_it_is_compared_with_the_next_version(tmp_path: Path) -> None:
    described = step.try_function(load(bound(tmp_path))["mine"])
    assert described["instances"] == 1 and described["batch"]["max"] == 4
    assert infer.unpack_question(described["request"])["x"].tolist() == [[0]]
    models = {"ensemble": "mine", "program": "mine_function"}
    written = {"kind": "callable", "models": models, "source": "mine.py", "triton": {"mine": {}}}
    assert Function.model_validate(written | described).description == described
    step.require_same("mine.py", {"mine": described}, {"mine": described, "another": {}})
    with pytest.raises(UserError, match="instances of mine in mine"):
        step.require_same("mine.py", {"mine": described}, {"mine": described | {"instances": 2}})
    with pytest.raises(UserError, match="does not bind mine"):
        step.require_same("mine.py", {"mine": described}, {})
    failing = "@batch\ndef f(x):\n    raise ValueError('no\\nzeros')\n"
    file = file_of(tmp_path, failing + bound(tmp_path).read_text().removeprefix(HEAD))
    with pytest.raises(UserError) as refused:
        step.try_function(load(file)["mine"])
    assert refused.value.cause == "mine does not answer its example (ValueError: no zeros)"


@pytest.mark.parametrize(
    ("datatype", "dims", "value", "expected"),
    [
        ("FP32", [2], [1, 2.5], [1, 2.5]),
        ("FP32", [1, 1], 3, [[3]]),
        ("INT8", [-1], [1, 2, 3], [1, 2, 3]),
        ("BOOL", [1], True, [True]),
        ("UINT8", [-1], [0, 255], [0, 255]),
        ("UINT64", [1], 2**64 - 1, [2**64 - 1]),
        ("UINT8", [1], 256, None),
        ("UINT64", [1], -1, None),
        ("INT64", [1], 2**63, None),
        ("FP16", [1], 70_000.0, None),
        ("FP32", [1], 1e39, None),
        ("BYTES", [-1], ["ä", b"b"], ["ä".encode(), b"b"]),
        ("BYTES", [1], "a", [b"a"]),
        ("INT8", [1], 300, None),
        ("UINT8", [1], -1, None),
        ("INT64", [1], 1.5, None),
        ("INT64", [1], "1", None),
        ("FP32", [2], [1, 2, 3], None),
        ("FP32", [1], [[1]], None),
        ("FP32", [-1], [[1], [1, 2]], None),
        ("BYTES", [1], 3, None),
    ],
)
def test_what_people_write_becomes_a_tensor(
    datatype: str, dims: list[int], value: Any, expected: Any
) -> None:
    spec = Spec("x", datatype, dims)
    if expected is None:
        with pytest.raises(NotAValue, match=r"x .*takes"):
            row(spec, value)
    else:
        assert row(spec, value).tolist() == expected
        assert anything(spec).dtype == row(spec, value).dtype


def test_a_request_names_its_tensors() -> None:
    unnamed: Any
    for unnamed in ([], "text", 5, None):
        with pytest.raises(NotAValue, match="it has no names"):
            rows([Spec("x", "INT32", [1])], unnamed)


def test_a_request_in_one_word_is_the_same_request() -> None:
    question = {
        "texts": np.array([[b"a", "ä".encode()]], np.object_),
        "numbers": np.arange(3, dtype=np.float16)[None],
        "flags": np.array([[True, False]]),
    }
    found = infer.unpack_question(infer.pack_question(question))
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in question.items()
    }
    assert found["numbers"].dtype == np.float16
