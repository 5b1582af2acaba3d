"""What docs/compatibility.md promises, by name: `python -m tests.promised` adds what is new to
recorded/promised.txt. What is gone stays there until a release has said so; then --released
removes it."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import bundle_client
from scripts.base import files
from scripts.program import verbs
from scripts.recipes import pipelines
from scripts.recipes.folders import Own
from scripts.repository import archive, layout_number, live
from scripts.settings import arguments, settings
from scripts.stacks import admin_key
from tests.project import ROOT, find_brought

RECORD = ROOT / "tests" / "recorded" / "promised.txt"


def list_promises() -> set[str]:
    lines = (*_list_words(), *_list_client(), *_list_api(), *_list_models(), *_list_files())
    return {" ".join(line.split()) for line in lines}


def read_record() -> set[str]:
    return {*RECORD.read_text().splitlines()} if RECORD.exists() else set()


def list_undeclared(gone: set[str], changelog: str) -> list[str]:
    """Those that the changes of the next release do not name."""
    _, _, coming = changelog.partition("## Unreleased")
    coming = coming.partition("\n## ")[0]
    return sorted(line for line in gone if not re.search(rf"`[^`]*\b{_name(line)}\b", coming))


def _name(line: str) -> str:
    """By which a user knows it: without the class, and what is taken."""
    kind, rest = line.split(" ", 1)
    name = rest.partition("(")[0].partition(":")[0]
    return re.escape(name.rpartition("." if kind == "client" else " ")[2])


def _list_words() -> Iterator[str]:
    for verb in verbs.read().values():
        if verb.about:
            yield f"command {verb.name}"
    for name in settings.ALL | arguments.ALL:
        yield f"setting {name}"


def _list_client() -> Iterator[str]:
    """What can be imported, with its arguments; their types are the checkers' to hold."""
    for name in bundle_client.__all__:
        found: Any = getattr(bundle_client, name)
        if not inspect.isclass(found):
            yield f"client {name}"
            continue
        yield f"client {name}{_write_arguments(found)}"
        for part, member in inspect.getmembers(found):
            if inspect.isfunction(member) and not part.startswith("_"):
                yield f"client {name}.{part}{_write_arguments(member)}"


def _write_arguments(found: Any) -> str:
    given = inspect.signature(found)
    bare = [each.replace(annotation=each.empty) for each in given.parameters.values()]
    return str(given.replace(parameters=bare, return_annotation=given.empty))


def _list_api() -> Iterator[str]:
    described = yaml.safe_load(
        (ROOT / "serving" / "bundle_door" / "paths" / "openapi.yaml").read_text()
    )
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            if isinstance(about, dict) and "responses" in about:
                yield f"http {method.upper()} {path}"
                named = (each["name"] for each in about.get("parameters", ()) if "name" in each)
                yield from (f"http {method.upper()} {path} {name}" for name in named)
    for name, schema in described["components"]["schemas"].items():
        yield from (f"answer {name} {field}" for field in schema.get("properties", ()))


def _list_models() -> Iterator[str]:
    """The pipelines, as any client of Triton sees them."""
    type_of = ModelConfig.DESCRIPTOR.fields_by_name["input"].message_type.fields_by_name[
        "data_type"
    ]
    folders = ROOT / "model_repository", *find_brought("*/model_repository")
    for pipeline in (pipelines.find_pipeline(pipelines.DEFAULT), *pipelines.others()):
        for file in (folder / pipeline.ensemble / "config.pbtxt" for folder in folders):
            config = text_format.Parse(file.read_text() if file.exists() else "", ModelConfig())
            for way in ("input", "output"):
                for each in getattr(config, way):
                    kind = type_of.enum_type.values_by_number[each.data_type].name
                    shape = "x".join(map(str, each.dims))
                    yield f"model {pipeline.ensemble} {way} {each.name}: {kind} {shape}"


def _list_files() -> Iterator[str]:
    own = Own(Path("own"))
    kept = live.REPOSITORY, archive.HERE, admin_key.PATH, layout_number.PATH
    yield from (f"file {path.relative_to(ROOT)}" for path in kept)
    yield from (f"file {path}" for path in (own.recipes, own.models, own.kinds, own.networks))
    yield f"format of build/versions: {layout_number.NUMBER}"


def main(words: list[str]) -> int:
    promised, released = list_promises(), "--released" in words
    lines = promised if released else promised | read_record()
    files.write(RECORD, "".join(f"{line}\n" for line in sorted(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
