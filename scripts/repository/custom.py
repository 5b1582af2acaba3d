"""A network of somebody's own: the recipe that is made of what they name."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from scripts import bootstrap
from scripts.artefacts.manifest import labels_for, lines_of
from scripts.artefacts.shapes import sides
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT, VENV, expand, locate
from scripts.intake.metadata import Found
from scripts.recipes import folders, pipelines
from scripts.recipes.configs import LABELS
from scripts.recipes.image import Image, Pictures
from scripts.recipes.parts import Models
from scripts.recipes.pictures import TORCHVISION
from scripts.settings import arguments
from scripts.settings.choices import require_known

if TYPE_CHECKING:
    from scripts.intake.signature import Signature

# Of weights for torchvision's architectures.
OTHERWISE = "export yours to ONNX, and give FROM=net.onnx with it"
ANOTHER_NAME = "give it a pipeline of its own: make add-model NAME=…"
# Where labelled pictures will tell how large they are to be.
TRIED_FIRST = (224, 224)
# In networks/NAME: what its first file said, which the user does not edit.
SAID = ".said.json"
FILES = (".json", ".yaml", ".yml")  # which PICTURES= may name
PICTURES = (
    'give keys of a recipe: PICTURES="fit: squash, channels: bgr", or a preprocessor_config.json'
)


def recipe(name: str, given: Any) -> Image:
    """Like the default pipeline, except for the names and the network."""
    network = _foreign(name, given) if given.get("ONNX") else _of_torchvision(name, given)
    first = _first().model_dump(mode="json", exclude_none=True)
    first["triton"] = {}
    first["models"] = models(name).model_dump()
    first["batch"]["max"] = _first().most
    pictures = first["pictures"] | network.pop("pictures", {})
    try:
        return Image.model_validate(first | network | {"pictures": pictures})
    except ValidationError as fault:
        raise _explain_error(fault) from None


def models(name: str) -> Models:
    return Models(
        ensemble=name,
        preprocessing=f"{name}_preprocessing",
        network=name,
        postprocessing=f"{name}_postprocessing",
    )


def _explain_error(fault: ValidationError) -> UserError:
    error = fault.errors()[0]
    key = ".".join(map(str, error["loc"])) or "the recipe"
    known = ", ".join(Pictures.model_fields)
    reason = error["msg"].removeprefix("Value error, ")
    return UserError(f"{key}: {reason[:1].lower()}{reason[1:]}", f"PICTURES= takes {known}")


def _first() -> Image:
    recipe = pipelines.find_pipeline(pipelines.DEFAULT).recipe
    assert isinstance(recipe, Image)
    return recipe


def _foreign(name: str, given: Any) -> dict[str, Any]:
    if Path(sys.prefix) == VENV:  # an image has it
        bootstrap.ensure("adopt")
    from scripts.intake.reading import GIVES
    from scripts.intake.signature import Hints, read, signature

    if given.get("ARCH") or given.get("WEIGHTS"):
        raise UserError(
            f"{Path(given['ONNX']).name} is already a complete network", "omit ARCH and WEIGHTS"
        )
    path = locate(expand(given["ONNX"]))
    model, labels = read(path), labels_given(name, given)
    found = _find_beside(path, model)
    given_pictures = pictures_given(given.get("PICTURES", ""))
    wanted = dict(found.pictures) | given_pictures
    known = lines_of(labels) or list(found.labels)
    named = [each.name for each in model.graph.output]
    output, gives = _output(given.get("OUTPUT", ""), named, GIVES)
    usual = _sides_of(wanted) or (TRIED_FIRST if arguments.load().eval_ else None)
    asked = Hints(size(given.get("SIZE", "")), usual, output, len(known))
    facts = signature(path, asked, model)
    classes = facts.classes
    is_inline = Path(given.get("PICTURES", "")).suffix not in FILES
    for key, value in _usual(facts).items() if facts.takes_levels and is_inline else ():
        if given_pictures.get(key, value) != value:
            raise UserError(
                f"{path.name} takes whole numbers, as pictures have: {key} would change nothing",
                "omit it in PICTURES=",
            )
    if labels:
        labels_for(known, max(2, classes), labels, path.name, of_one=classes == 1)
    elif len(known) == classes:
        labels = _labels_as_found(name)
        files.write(labels, "".join(f"{line}\n" for line in _as_lines(known)))
    if found.source:
        files.write(_labels_as_found(name).with_name(SAID), json.dumps(asdict(found)) + "\n")
    return {
        "source": beside_recipes(path),
        "labels": beside_recipes(labels) if labels else "",
        "classes": max(2, classes),
        "answers": "",  # which its numbers tell
        "output": output,
        "gives": gives or found.gives,
        "pictures": _complete(facts, wanted),
    }


def _find_beside(path: Path, model: Any) -> Found:
    from scripts.intake import metadata

    return metadata.find_beside(path, {each.key: each.value for each in model.metadata_props})


def find_said(path: Path) -> Found:
    """What a network's file, or one beside it, says of its pictures and its labels."""
    if Path(sys.prefix) == VENV:  # an image has it
        bootstrap.ensure("adopt")
    from scripts.intake.signature import read

    return _find_beside(path, read(path))


def _labels_as_found(name: str) -> Path:
    """Where nobody gave any."""
    return folders.own().networks / name / LABELS


def _as_lines(labels: Sequence[str]) -> list[str]:
    return [" ".join(label.split()) or f"class {n}" for n, label in enumerate(labels)]


def require_as_said(name: str, recipe: Image, network: Path) -> None:
    """Of another file for a pipeline: what it says is what the pipeline does, or what the first one
    said, where the user has other words for that."""
    first = recipe.path_beside(recipe.source)
    noted = files.read_json(_labels_as_found(name).with_name(SAID))  # earlier releases wrote none
    before = [Found(**noted)] if noted else []
    if first != network and first.is_file():
        before.append(find_said(first))
    said = find_said(network)
    _require_same_labels(name, recipe, network.name, said, before)
    if said.pictures and before and not recipe.pre:
        _require_same_pictures(name, recipe, network, said, before)
    multi = "multi-label"
    is_known = not (said.gives and before) or said.gives in (each.gives for each in before)
    if not is_known and (said.gives == multi) != (recipe.reading == multi):
        raise UserError(
            f"{network.name} gives {said.gives}, and {name} is {recipe.reading}", ANOTHER_NAME
        )


def _require_same_labels(
    name: str, recipe: Image, network: str, said: Found, before: Sequence[Found]
) -> None:
    """If they were found in its first file, or beside that."""
    kept = _labels_as_found(name)
    if recipe.labels_file is None or recipe.labels_file.resolve() != kept.resolve():
        return
    served, wanted = lines_of(kept), _as_lines(said.labels)
    known = (served, *(_as_lines(each.labels) for each in before))
    if len(wanted) != len(served) or wanted in known:
        return
    number = next(n for n, label in enumerate(served) if wanted[n] != label)
    raise UserError(
        f"{network} calls class {number} {wanted[number]}, and {kept} calls it {served[number]}",
        f"write the labels that are right into that file; if it has them, name a copy of it as "
        f"labels: in {folders.own().recipes / name}.yaml",
    )


def _require_same_pictures(
    name: str, recipe: Image, network: Path, said: Found, before: Sequence[Found]
) -> None:
    if Path(sys.prefix) == VENV:  # an image has it
        bootstrap.ensure("adopt")
    from scripts.intake.signature import Hints, signature

    if said.pictures in [each.pictures for each in before]:
        return
    size, classes = sides(recipe.pictures.crop), recipe.class_count
    facts = signature(network, Hints(size, None, recipe.output, classes))
    usual = _first().pictures.model_dump()
    try:
        wanted = Pictures.model_validate(usual | _complete(facts, said.pictures))
    except ValidationError as fault:
        raise _explain_error(fault) from None
    if str(wanted) != str(recipe.pictures):
        raise UserError(
            f"{network.name} wants pictures otherwise than {name} prepares them: {wanted}",
            f"write that below pictures: in {folders.own().recipes / name}.yaml, or {ANOTHER_NAME}",
        )


def _complete(facts: Signature, wanted: Mapping[str, Any]) -> dict[str, Any]:
    if facts.channels == 1:  # three equal levels are those of a grey picture
        wanted = {key: _one_of_three(each) for key, each in wanted.items()}
    usual = _usual(facts)
    of_levels = usual if facts.takes_levels else {}  # as they are, whatever lies beside it
    return {**usual, **wanted, **of_levels, "crop": _crop(facts), **_margin(facts, wanted)}


def _one_of_three(levels: Any) -> Any:
    return levels[:1] if isinstance(levels, list) and levels == levels[:1] * 3 else levels


def _usual(facts: Signature) -> dict[str, Any]:
    """As in most trainings, where nothing says otherwise."""
    found: dict[str, Any] = {"channels": "grey"} if facts.channels == 1 else {}
    if facts.takes_levels:
        found["scale"] = 1
    if found:
        found |= {"mean": [0] * facts.channels, "std": [1] * facts.channels}
    return found


def _margin(facts: Signature, wanted: Mapping[str, Any]) -> dict[str, int]:
    """As in most trainings, resized to an eighth more than the crop; squashed or framed whole."""
    short, usual = min(facts.size), _sides_of(wanted)
    if "resize" in wanted:  # for another size, as much more
        return {"resize": round(wanted["resize"] * short / min(usual or facts.size))}
    whole = wanted.get("fit", "crop") != "crop"
    return {"resize": short if whole else round(short * 8 / 7)}


def _crop(facts: Signature) -> int | list[int]:
    height, width = facts.size
    return height if height == width else [height, width]


def _sides_of(wanted: Mapping[str, Any]) -> tuple[int, int] | None:
    """What is known of the size beside the network; its file may say otherwise."""
    crop = wanted.get("crop")
    if isinstance(crop, int):
        return crop, crop
    return (crop[0], crop[1]) if isinstance(crop, Sequence) and len(crop) == 2 else None


def size(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    numbers = re.fullmatch(r"(\d{1,4})(?:x(\d{1,4}))?", text)
    if not numbers:
        raise UserError(f"SIZE={text} is not a size", "give SIZE=224, or height and width: 224x320")
    return int(numbers[1]), int(numbers[2] or numbers[1])


def _output(text: str, outputs: Sequence[str], ways: Collection[str]) -> tuple[str, str]:
    """Which output, and what it gives: OUTPUT=logits, OUTPUT=multi-label, or both."""
    output = gives = ""
    for word in text.split():
        if word in outputs and (len(outputs) > 1 or word not in ways):
            output = word
        elif word in ways:
            gives = word
        else:
            raise UserError(
                f"OUTPUT={word} is neither an output of the network nor a way to read one",
                f"choose one: {', '.join([*outputs, *ways])}",
            )
    return output, gives


def pictures_given(given: str) -> dict[str, Any]:
    """PICTURES=: keys of a recipe's `pictures`, or the file that says them."""
    if not given:
        return {}
    path = expand(given)
    try:
        text = path.read_text() if path.suffix in FILES else f"{{{given}}}"
        found = yaml.safe_load(text)
        found = found.get("pictures", found) if isinstance(found, dict) else None
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"cannot read PICTURES={given} ({fault})", PICTURES) from None
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"PICTURES={given} cannot be understood", PICTURES)
    from scripts.intake import metadata

    if not found.keys() <= Pictures.model_fields.keys():
        cfg = found.get("pretrained_cfg", found)
        found = metadata.of_hugging_face(found) or metadata.of_timm(cfg) or found
    for key, is_size, what in (
        ("resize", _is_side, "the short side"),
        ("crop", _is_size, "a side, or [height, width]"),
    ):
        if key in found and not is_size(found[key]):
            raise UserError(f"{key}: {found[key]} is not {what}, in pixels", PICTURES)
    return dict(found)


def _is_side(given: Any) -> bool:
    return type(given) is int and given > 0


def _is_size(given: Any) -> bool:
    sides = given if isinstance(given, list) and len(given) == 2 else [given]
    return all(map(_is_side, sides))


def _of_torchvision(name: str, given: Any) -> dict[str, Any]:
    if not (given.get("ARCH") or given.get("WEIGHTS")):
        raise UserError(
            "no network given",
            "give ONNX=net.onnx, FROM=a folder or a name on a hub, or one of torchvision's: "
            "ARCH=resnet18 (and WEIGHTS=mine.pth)",
        )
    arch = given.get("ARCH") or "resnet50"
    require_known(arch)
    if word := next((word for word in ("OUTPUT", "PICTURES", "SIZE") if given.get(word)), ""):
        raise UserError(
            f"{word}= is not for torchvision's networks: they are served as torchvision's own "
            "weights were trained, with one right label a picture",
            OTHERWISE,
        )
    weights, labels = given.get("WEIGHTS") or "default", labels_given(name, given)
    if len(lines_of(labels)) == 1:
        raise UserError(
            f"{labels} has one label, and a softmax over one class says nothing",
            f"{OTHERWISE}: its one number is read as yes or no",
        )
    if weights not in ("default", "random"):
        weights = beside_recipes(locate(expand(weights)))
    return {
        "source": TORCHVISION + arch,
        "weights": weights,
        "labels": beside_recipes(labels) if labels else "torchvision",
        "classes": len(lines_of(labels)) or _first().class_count,
    }


def labels_given(name: str, given: Any) -> Path | None:
    """A copy, if they are in a report's folder, such as those that a check has put in order."""
    if not given.get("LABELS"):
        return None
    path = expand(given["LABELS"]).resolve()
    if not (path.is_relative_to(ROOT / "build") and path.is_file()):
        return path
    kept = folders.own().networks / name / "labels_given.txt"
    files.write_bytes(kept, path.read_bytes())
    return kept


def beside_recipes(path: Path) -> str:
    """File names in a recipe are relative to it."""
    return os.path.relpath(path, folders.own().recipes)
