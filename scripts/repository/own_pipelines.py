"""Pipelines that the user adds: what they may be called, and their files."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from bundle_serving import NAME
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT, expand, locate
from scripts.intake.metadata import ABOUT
from scripts.recipes import configs, folders, pipelines
from scripts.recipes.layout import CPU, GPU
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.recipe import Recipe
from scripts.recipes.schema import load
from scripts.repository import archive, live

# In networks/NAME, where the user had that folder before: it stays when the pipeline goes.
YOURS = ".yours"
# There, too: what the pipeline was made of, so that the same words mean it again; and what its
# network was converted from, as it was then.
GIVEN, MADE_OF = "given.json", "made_of.json"
# Words that may name a file of the user's.
NAMING = ("FROM", "ONNX", "WEIGHTS", "LABELS", "PICTURES")
HEAD = "# Copied from {}, with what the recipe says. Yours to edit.\n"


def require_a_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        problem = f"NAME={name} is not a valid name" if name else "no NAME given"
        raise UserError(problem, "use letters, digits, _ and -: NAME=birds")


def require_unused(name: str, word: str = "NAME") -> None:
    """Not even in other case: some file systems do not tell the two apart."""
    for there in pipelines.recipes():
        if there.casefold() == name.casefold():
            raise UserError(
                f"{there} already exists",
                f"for a new version of it, make publish MODEL={there}; or choose another {word}",
            )


def require_new(pipeline: Pipeline) -> None:
    """None of its names may exist: if adding it fails, all of its files are removed again."""
    names = {pipeline.name, pipeline.ensemble, *pipeline.recipe.members}
    wanted = {name.casefold() for name in names}
    there = folders.model_folders().keys() | pipelines.recipes().keys()
    if taken := sorted(name for name in there if name.casefold() in wanted):
        raise UserError(f"{taken[0]} already exists", "choose another NAME")
    if archive.numbers(pipeline):
        kept = archive.home(pipeline).relative_to(ROOT)
        raise UserError(
            f"versions of an earlier {pipeline.name} are in {kept}",
            "choose another NAME, or remove them",
        )


@contextmanager
def keep_folder(name: str, given: Mapping[str, str]) -> Iterator[Path]:
    """For what is made of its network: networks/NAME, which is gone again if what follows fails.
    One that is there already is the user's, unless a killed run has left it, and nothing in it is
    named."""
    folder, begun = folders.own().networks / name, _begun(name)
    if folder.exists() and (not begun.exists() or _is_named(folder, given)):
        (folder / YOURS).touch()
    _remove_networks(name)
    if not folder.exists():
        files.write(begun, "")
    try:
        yield folder
    except BaseException:  # Ctrl-C too
        _remove_networks(name)
        raise
    finally:
        begun.unlink(missing_ok=True)


def _begun(name: str) -> Path:
    return folders.own().networks / f".{name}.begun"


def _is_named(folder: Path, given: Mapping[str, str]) -> bool:
    """Or something in it."""
    named = (given.get(word, "").strip() for word in NAMING)
    paths = (locate(expand(each)) for each in named if each)
    return any(path.is_relative_to(locate(folder)) and path.exists() for path in paths)


def _remove_networks(name: str) -> None:
    """With the mark: what the user puts there next would be taken for what a killed run left."""
    folder = folders.own().networks / name
    if not (folder / YOURS).exists():
        shutil.rmtree(folder, ignore_errors=True)
    _begun(name).unlink(missing_ok=True)


@contextmanager
def write_pipeline(pipeline: Pipeline, head: str) -> Iterator[None]:
    """Writes its recipe, with a head that says how it is asked, and its model folders; removes them
    again if what follows fails."""
    own = folders.own()
    keys = pipeline.recipe.model_dump(mode="json", exclude_none=True)
    content = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None)
    try:
        # By which, as in `remove`, all is found.
        files.write(_recipe(pipeline), head + content, lasting=True)
        write_models(pipeline.recipe, own.models)
        yield
    except BaseException:
        remove(pipeline)
        raise


def remove(pipeline: Pipeline) -> None:
    """All its files; what the server has loaded of it stays. Its ensemble goes first, without which
    its models are written anew; and its recipe last, by which another try finds what is left."""
    own, there = folders.own(), folders.model_folders()
    models = (pipeline.recipe.ensemble, *pipeline.recipe.members)
    written = [there[model] for model in models if model in there]
    laid_out = [
        *(folder for folder in written if folder.is_relative_to(own.folder)),
        *(live.REPOSITORY / model for model in models),
    ]
    for folder in (*laid_out, archive.home(pipeline)):
        shutil.rmtree(folder, ignore_errors=True)
    _mark_as_users(own.networks / pipeline.name, pipeline.recipe)
    _remove_networks(pipeline.name)
    pipelines.of_the_user().get(pipeline.name, _recipe(pipeline)).unlink(missing_ok=True)


def _mark_as_users(folder: Path, recipe: Recipe) -> None:
    """Releases up to 1.5.0 did not, and of a pipeline beside the main one noted no words."""
    read = {"FROM": getattr(recipe, "source", ""), "WEIGHTS": getattr(recipe, "weights", "")}
    of_recipe = {word: str(recipe.path_beside(path)) for word, path in read.items()}
    is_converted = any((folder / name).exists() for name in (ABOUT, MADE_OF))
    is_read = not is_converted and _is_named(folder, of_recipe)
    if is_read or _is_named(folder, files.read_json(folder / GIVEN)):
        (folder / YOURS).touch()


def _recipe(pipeline: Pipeline) -> Path:
    return folders.own().recipes / f"{pipeline.name}.yaml"


def write_models(recipe: Recipe, out: Path) -> None:
    """The model folders of a pipeline that is made for the user: copies of those of its kind's
    example, with what its recipe says."""
    example = recipe.example_path()
    if not example.exists():  # of a kind of the user's
        wanted = ", ".join(recipe.model_names.values())
        raise UserError(f"{recipe.ensemble} has no model folders", f"write {wanted} in {out}")
    names = _map_names(recipe, example)
    contents = dict(_list_contents(recipe, example, names))  # before any is written
    # The ensemble last: where it is, all are.
    for path in sorted(contents, key=lambda path: path.startswith(f"{recipe.ensemble}/")):
        files.write_bytes(out / path, contents[path])


def _map_names(recipe: Recipe, example: Path) -> dict[str, str]:
    """Of the example's models -> of the recipe's."""
    if example.is_dir():  # which are called what they are for
        return dict(recipe.model_names)
    template = load(example)
    names = dict(zip(template.model_names.values(), recipe.model_names.values(), strict=True))
    for engine in (CPU, GPU):
        names |= zip(template.list_borrowed(engine), recipe.list_borrowed(engine), strict=True)
    return names


def _list_contents(
    recipe: Recipe, example: Path, names: dict[str, str]
) -> Iterator[tuple[str, bytes]]:
    own = {*recipe.model_names.values()}
    for source, model in names.items():
        folder = example / source if example.is_dir() else folders.model_folder(source)
        for path in sorted(folder.rglob("*")) if model in own else ():
            if path.is_file() and "__pycache__" not in path.parts:
                is_config = path.suffix == ".pbtxt"
                content = _adapt_config(recipe, path, names) if is_config else path.read_bytes()
                yield f"{model}/{path.relative_to(folder)}", content
    for name, text in recipe.own_files().items():
        yield name, text.encode()


def _adapt_config(recipe: Recipe, path: Path, names: dict[str, str]) -> bytes:
    from google.protobuf import text_format

    member = configs.read(path)
    head = HEAD.format(member.name)
    member.name = names[member.name]
    for step in member.ensemble_scheduling.step:
        step.model_name = names[step.model_name]
    recipe.adapt(member)
    return (head + text_format.MessageToString(member)).encode()
