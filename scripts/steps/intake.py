"""A network from where people keep them -> an ONNX file, and what is known of its pictures.

    python -m scripts.steps.intake --source google/vit --out own/networks/vit/vit.onnx
    python -m scripts.steps.intake --source timm/resnet18 --weights random --out …

A source is a folder of Hugging Face, timm or MLflow, a TorchScript or torch.export file, or a name
on the hub. Out: an ONNX file, and about.json beside it: how pictures are prepared, labels, what it
gives.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.artefacts.exporting import start
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import NoWeights, UserError, of_the_machine, reword_faults
from scripts.base.paths import expand
from scripts.intake import metadata, torch_files
from scripts.intake.metadata import Found
from scripts.intake.signature import Size

if TYPE_CHECKING:
    from torch import nn

TIMM = "timm/"
REACHED_S = 5  # within which a hub must answer
UNTRAINED = " (untrained weights)"
# Levels of 255; processors resize with other libraries, which round otherwise.
CLOSE = 2.0
SAME = 0.001  # of the largest score
SAME_IN_HALF = 0.02  # or in other types than float32
SAVE = "torch.jit.trace(network, example).save(…), torch.export.save(…) or torch.onnx.export(…)"
AGAIN = f"save it again: {SAVE}"


def main(
    source: str,
    out: Path,
    weights: str = "default",
    size: tuple[int, int] | None = None,
    pictures_given: bool = False,
    trusted: bool = False,
) -> None:
    """`source`: a file, a folder, or a name on the hub; `weights`: of timm: random, or a file;
    `size`: height and width; `pictures_given`: the user says how it wants pictures; `trusted`: run
    code that it brings."""
    quieten()
    with files.whole_folder(out.parent) as draft:
        found = take(source, weights, size, pictures_given, draft / out.name, trusted)
        about = {"pictures": found.pictures, "labels": found.labels, "gives": found.gives}
        (draft / metadata.ABOUT).write_text(json.dumps(about, indent=2) + "\n")


def quieten() -> None:
    """What other people's libraries remark helps nobody here."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def take(
    source: str,
    weights: str,
    size: Size | None,
    pictures_given: bool,
    path: Path,
    trusted: bool = False,
) -> Found:
    # What loads weights must not fall back on code, whatever it is told.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    there = expand(source)
    if "pretrained_cfg" in files.read_json(there / "config.json"):
        return _of_timm(f"local-dir:{there}", there.name, weights, size, path)
    if source.startswith(TIMM) and not there.exists():
        name = source.removeprefix(TIMM)
        return _of_timm(name, name, weights, size, path)
    if weights != "default":
        raise UserError(
            f"WEIGHTS= is for a network of timm's, and {source} has its own", "omit WEIGHTS="
        )
    if there.is_file():
        return _of_torch(there, size, path, trusted)
    name = str(there) if there.is_dir() else source
    return _of_hugging_face(name, size, pictures_given, path, trusted)


# PyTorch's files.


def _of_torch(source: Path, size: Size | None, path: Path, trusted: bool) -> Found:
    import torch

    if source.suffix == ".pt2":
        torch_files.require_no_pickles(source)
        if not trusted:
            raise UserError(
                f"{source.name} is a program, whose text PyTorch evaluates when it reads it",
                torch_files.TRUST,
            )
        with step(f"exporting {source.name} to ONNX"):
            with reword_faults(f"{source.name} cannot be exported", AGAIN):
                program = torch.export.load(source)
                torch.onnx.export(
                    program, (), path, dynamo=True, external_data=False, verbose=False
                )
            _require_the_program(program, path)
        return Found()
    if (word := torch_files.reaches_out(source)) and not trusted:
        raise UserError(
            f"{source.name} does more than arithmetic ({word}), such as to write files",
            torch_files.TRUST,
        )
    with step(f"exporting {source.name} to ONNX"):
        try:
            module = torch.jit.load(source, map_location="cpu").eval()
        except Exception:
            raise _no_network(source) from None
        if size is None:
            raise UserError(
                f"{source.name} does not say what size of pictures it takes", "say it: SIZE=224"
            )
        example = _find_accepted(module, source, size)
        _trace(module, example, path)
        _require_the_same(module, example, path)
    return Found()


def _find_accepted(module: Any, source: Path, size: Size) -> Any:
    """Pictures in colour, or else grey ones."""
    import torch

    for channels in (3, 1):
        example = torch.zeros(2, channels, *size)
        try:
            with reword_faults(f"{source.name} cannot be exported", AGAIN), torch.inference_mode():
                module(example)
            return example
        except UserError as fault:
            refusal = fault
    raise refusal


def _no_network(source: Path) -> UserError:
    """What people save most is no network that could run by itself."""
    import torch

    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception:
        return UserError(
            f"{source.name} needs the code that it was saved with, or is no file of PyTorch's",
            f"save what can be run by itself: {SAVE}",
        )
    if isinstance(state, dict):
        return UserError(
            f"{source.name} has weights, and no network",
            "serve it by its architecture, without FROM=: ARCH=resnet18 "
            f"WEIGHTS={shlex.quote(str(source))}; or save the whole network: {SAVE}",
        )
    return UserError(f"{source.name} has no network", f"save one: {SAVE}")


# Libraries.


def _of_timm(name: str, shown: str, weights: str, size: Size | None, path: Path) -> Found:
    with step(f"loading timm's {shown}"):
        ready(is_local=weights != "default" or name.startswith("local-dir:"))
        import timm
        from timm.data import ImageNetInfo

        file = weights if weights not in ("default", "random") else ""
        create = partial(timm.create_model, name, pretrained=weights == "default")
        try:
            module = _create_in_size(create, size)
            if file:
                timm.models.load_checkpoint(module, file, filter_fn=_fit_classes)
        except RuntimeError as fault:
            if "Unknown model" not in str(fault):
                raise _not_loaded(shown, fault, file) from None
            near = ", ".join(timm.list_models(f"*{name.split('_')[0].split('.')[0]}*")[:5])
            raise UserError(
                f"timm has no network {name}", f"choose one: {near}" if near else "check its name"
            ) from None
        except Exception as fault:
            raise _not_loaded(shown, fault, file) from None
        config = dict(module.pretrained_cfg)
        data = timm.data.resolve_model_data_config(module, use_test_size=True)
        channels, *tested = data["input_size"]
        if size and [*size] != tested:
            data = timm.data.resolve_model_data_config(module)
            data["input_size"] = (channels, *size)
        pictures = metadata.of_timm(data)
        classes = module.num_classes
        labels = list(config.get("label_names") or ())
        if not labels and classes == 1000:
            info = ImageNetInfo()
            labels = [info.index_to_description(number) for number in range(classes)]
        if weights == "random":
            labels = [f"{name}{UNTRAINED}" for name in labels or map(str, range(classes))]
    _export(module, size, pictures, path)
    return Found(pictures, tuple(labels))


def _fit_classes(weights: Mapping[str, Any], module: nn.Module) -> Mapping[str, Any]:
    """As many as the weights are of, which may be trained for classes of somebody's own."""
    last = weights.get(f"{module.pretrained_cfg.get('classifier')}.weight")
    if last is not None and len(last) != module.num_classes:
        module.reset_classifier(len(last))
    return weights


def _create_in_size(create: Callable[..., nn.Module], size: Size | None) -> nn.Module:
    """Transformers of pictures must know it beforehand; others take any, and do not know it."""
    if size:
        try:
            return create(img_size=size)
        except TypeError as fault:
            if "img_size" not in str(fault):
                raise
    return create()


def _of_hugging_face(
    source: str, size: Size | None, pictures_given: bool, path: Path, trusted: bool
) -> Found:
    with step(f"loading {source}"):
        ready(is_local=Path(source).is_dir())
        import torch
        from huggingface_hub.utils import logging as hub_logging
        from transformers import AutoConfig, AutoModelForImageClassification
        from transformers.utils import logging as transformers_logging

        hub_logging.set_verbosity_error()  # otherwise each of five retries is logged twice
        transformers_logging.disable_progress_bar()
        try:
            config = AutoConfig.from_pretrained(source, trust_remote_code=trusted)
            if metadata.of_a_detector(config.to_dict()):
                raise UserError(
                    f"{source} is a detector, which is taken from a folder alone",
                    "save it and its processor to one: save_pretrained(folder); FROM=folder",
                )
            names = config.id2label
            if {*names} != {*range(len(names))}:
                raise UserError(
                    f"the id2label of {source} does not number its classes from 0",
                    "number them so in its config.json",
                )
            gives = metadata.gives_of(config.to_dict(), source) or "scores"
            module, found = AutoModelForImageClassification.from_pretrained(
                source,
                dtype=torch.float32,
                trust_remote_code=trusted,
                output_loading_info=True,
            )
            require_whole(source, module, found)
        except UserError:
            raise
        except Exception as fault:
            raise _not_loaded(source, fault, "") from None

        class Logits(torch.nn.Module):  # type: ignore[misc]  # torch comes without types here
            def __init__(self) -> None:
                super().__init__()
                self.inside = module

            def forward(self, pixels: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = self.inside(pixel_values=pixels).logits
                return logits

        grey = {"channels": "grey"} if getattr(config, "num_channels", 3) == 1 else {}
        pictures = _observe_processor(source, pictures_given, trusted, grey)
        labels = tuple(str(names[number]) for number in range(len(names)))
    _export(Logits().eval(), size, pictures, path)
    return Found(pictures, labels, gives)


def require_whole(source: str, module: nn.Module, found: Mapping[str, Any]) -> None:
    """transformers makes up the weights that it does not find."""
    if lacking := sorted(found["missing_keys"]):
        raise UserError(
            f"{source} lacks {len(lacking)} weights of {type(module).__name__}, such as "
            f"{lacking[0]}",
            "save the whole network: model.save_pretrained(folder)",
        )


def ready(is_local: bool) -> None:
    """Without network, the hub's client would try each file for half a minute."""
    from scripts.steps import vision

    assert vision.torchvision  # otherwise both libraries fail at its import
    import huggingface_hub
    from huggingface_hub import constants

    if not is_local:
        try:
            huggingface_hub.get_session().head(constants.ENDPOINT, timeout=REACHED_S)
        except Exception:
            is_local = True
    if is_local:
        constants.HF_HUB_OFFLINE = True
        os.environ["HF_HUB_OFFLINE"] = "1"


def _not_loaded(shown: str, fault: Exception, file: str) -> UserError:
    if "trust_remote_code" in str(fault):
        return UserError(f"{shown} brings code of its own", "if you trust its maker: TRUST=1")
    message = " ".join(str(fault).split()).partition(". ")[0][:200]
    if Path(shown).is_dir():
        return UserError(
            f"{shown} cannot be loaded as a classifier of pictures: {message}",
            "copy it again if a file is missing or cut off; or name another folder",
        )
    if file:
        return UserError(f"{file} does not fit timm's {shown}: {message}", "check WEIGHTS=")
    return of_the_machine(fault) or NoWeights(
        f"{shown} is not on this machine, and cannot be loaded from its hub: {message}",
        "check its name; without network, name a folder with it: FROM=folder",
    )


def _observe_processor(
    source: str, pictures_given: bool, trusted: bool, grey: dict[str, str]
) -> dict[str, Any]:
    """How its processor prepares pictures, seen on one that it prepares; `grey`: of such ones."""
    import numpy as np
    from transformers import AutoImageProcessor

    from scripts.artefacts.picture import mug
    from scripts.intake import plain

    try:
        processor = AutoImageProcessor.from_pretrained(source, trust_remote_code=trusted)
    except Exception as fault:
        if pictures_given:
            return {**grey}
        if "trust_remote_code" in str(fault):
            raise _not_loaded(source, fault, "") from None
        raise UserError(
            f"{source} does not say how it wants pictures (preprocessor_config.json)",
            'say it: SIZE=224 PICTURES="resize: 256, crop: 224, …"',
        ) from None
    found = metadata.of_hugging_face(processor.to_dict()) | grey
    if pictures_given:
        return found
    how = dict(metadata.USUAL) | found
    picture = mug().convert("L") if grey else mug()
    try:
        given = np.asarray(processor(images=picture, return_tensors="np")["pixel_values"][0])
        levels = plain.order_channels(plain.crop(picture, how), how)
        wanted = plain.normalise(levels, how).transpose(2, 0, 1)
        far = float(np.abs((given - wanted) * np.array(how["std"]).reshape(-1, 1, 1)).mean() * 255)
    except Exception:  # the processor's are of many kinds
        far = float("inf")
    if not found or not far <= CLOSE:  # it may be NaN
        raise UserError(
            f"{type(processor).__name__} prepares pictures in a way that is not known here",
            'say what it does: PICTURES="resize: 256, crop: 224, …"',
        )
    return found


def _export(module: nn.Module, size: Size | None, pictures: dict[str, Any], path: Path) -> None:
    """By PyTorch's exporter, or else by its predecessor, which traces."""
    import torch

    from scripts.artefacts.onnx_file import BATCH, save
    from scripts.artefacts.shapes import sides

    module = module.eval()
    channels = 1 if pictures.get("channels") == "grey" else 3
    example = torch.zeros(2, channels, *(size or sides(pictures.get("crop", 224))))
    with step("exporting to ONNX"):
        try:
            save(module, {"pixels": example}, ({0: BATCH},), "output", path)
        except Exception:
            _trace(module, example, path)
        _require_the_same(module, example, path)


def _trace(module: Any, example: Any, path: Path) -> None:
    from scripts.artefacts.onnx_file import trace_to_file

    remedy = f"try another SIZE=, or save it as {SAVE}"
    with reword_faults("PyTorch cannot export it to ONNX", remedy):
        trace_to_file(module, "pixels", example, path)


def _require_the_same(module: Any, example: Any, path: Path) -> None:
    """An exporter may write down what holds for its example alone. There may be several outputs."""
    import numpy as np
    import torch

    from scripts.intake.original import Session, require_near

    noise = torch.randn(3, *example.shape[1:], generator=torch.Generator().manual_seed(0))
    given, asked = _ask_module(module, noise), Session(path, "the exported network")
    rows = [asked.run(None, {"pixels": each[None].numpy()}) for each in noise]
    for expected, parts in zip(given, zip(*rows, strict=True), strict=False):
        found = np.concatenate([np.atleast_1d(each) for each in parts])
        require_near(expected, found, SAME, "PyTorch")


def _require_the_program(program: Any, path: Path) -> None:
    """On noise as its examples are, which a program brings along."""
    import onnx
    import torch

    from scripts.intake.original import Session, require_near

    examples, named = program.example_inputs or ((), {})
    # Nothing runs bfloat16 here; and noise is no number of a word, which may be an input, too.
    taken = (torch.float32, torch.float64, torch.float16, torch.uint8)
    if not examples or named or any(getattr(one, "dtype", None) not in taken for one in examples):
        return
    torch.manual_seed(0)
    noise = [
        torch.randn_like(each) if each.is_floating_point() else torch.randint_like(each, 100)
        for each in examples
    ]
    names = [each.name for each in onnx.load(path, load_external_data=False).graph.input]
    asked = {name: each.numpy() for name, each in zip(names, noise, strict=True)}
    same = SAME if all(each.dtype == torch.float32 for each in noise) else SAME_IN_HALF
    found = Session(path, "the exported network").run(None, asked)
    for expected, each in zip(_ask_module(program.module(), *noise), found, strict=False):
        require_near(expected, each, same, "PyTorch")


def _ask_module(module: Any, *given: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree

    with torch.inference_mode():
        leaves = _pytree.tree_leaves(module(*given))
    return [each.float().numpy() for each in leaves if isinstance(each, torch.Tensor)]


if __name__ == "__main__":
    start(main)
