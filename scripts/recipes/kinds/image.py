"""Image files -> what they show."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bundle_serving.infer import Answer
from bundle_serving.networks import is_ir
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders, pbtxt
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Batch, Count, Instances, Models, Part
from scripts.recipes.pbtxt import NEWEST_VERSION, Step, Tensor, share
from scripts.recipes.pictures import OfPictures, labels_of
from scripts.recipes.recipe import Contents, Export
from scripts.settings.architectures import DRAWN
from scripts.settings.settings import CHECK, VERSION, Settings, names
from scripts.steps.manifest import Foreign, Torchvision, external_data
from scripts.steps.shapes import of_pixels, sides
from scripts.steps.workspace import Workspace

TORCHVISION = "torchvision/"
WHOLE = (".onnx", ".xml")  # files with networks, and not with weights alone
# Triton's parameter that decides whether a Python model's inputs are copied to the host.
STAY = "FORCE_CPU_ONLY_INPUT_TENSORS"
PREPROCESSING = ROOT / "model_repository" / "preprocessing"
# In configs/, of the ensemble and the network, for STEPS=1.
ONE_STEP = "one_step"


# What DALI does as Pillow does; the rest is prepared on the CPU.
ON_GPU = {"fit": ("crop",), "interpolation": ("bilinear", "bicubic")}

Side = Annotated[int, Field(ge=1, le=4096)]
Levels = Annotated[tuple[float, ...], Field(min_length=1, max_length=3)]


class Pictures(Part):
    """How a picture becomes what the network takes. `resize` is the short side before the crop."""

    resize: Side
    crop: Side | tuple[Side, Side]  # a side, or height and width
    fit: Literal["crop", "squash", "letterbox"] = "crop"
    pad: Annotated[int, Field(ge=0, le=255)] = 0  # the level of a letterbox's borders
    middle: Literal["even", "first"] = "even"  # of two offsets of the crop, as near the middle
    interpolation: Literal["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"] = (
        "bilinear"
    )
    channels: Literal["rgb", "bgr", "grey"] = "rgb"
    scale: Annotated[float, Field(gt=0)] = 255  # (pixel / scale - mean) / std
    mean: Levels
    std: Levels

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.fit != "letterbox" and self.resize < min(sides(self.crop)):
            raise ValueError("resize must be at least as large as crop")
        wanted = 1 if self.channels == "grey" else 3
        if {len(self.mean), len(self.std)} != {wanted}:
            raise ValueError(f"mean and std of {self.channels} have {wanted} each")
        if 0 in self.std:
            raise ValueError("std must not be 0")
        return self

    def __str__(self) -> str:
        height, width = sides(self.crop)
        how = {
            "crop": f"short side {self.resize}, middle {width}x{height}",
            "squash": f"squashed, middle {width}x{height}",
            "letterbox": f"whole, in a frame of {width}x{height} (level {self.pad})",
        }[self.fit]
        mean, std = ("/".join(f"{each:g}" for each in values) for values in (self.mean, self.std))
        numbers = f"(pixel / {self.scale:g} - {mean}) / {std}"
        return f"{how}, {self.interpolation}, {self.channels}, {numbers}"


class Image(OfPictures):
    """An image file -> the probability of each class."""

    kind: Literal["image"]
    models: Models
    source: str  # torchvision/ARCH, or the path of an .onnx or .xml file
    weights: str = "default"
    labels: str = ""  # torchvision, or a file's path; empty: an ONNX file's classes are numbered
    classes: Count
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    # Whether one of the labels is right, or any number of them. Empty: not known yet.
    answers: Literal["single-label", "multi-label", ""] = "single-label"
    output: str = ""  # of an ONNX file with several: the one with the answer
    # What an ONNX file gives. Empty: its numbers tell.
    gives: Literal["", "scores", "probabilities", "multi-label"] = ""
    pictures: Pictures
    batch: Batch
    instances: Instances
    warmup: str

    example: ClassVar[str] = "resnet50.yaml"

    def files(self) -> dict[str, str]:
        warm = PREPROCESSING / "warmup" / self.warmup
        if not warm.is_file():
            name = warm.relative_to(PREPROCESSING.parent)
            raise UserError(f"there is no {name}", "put the recipe's warm-up picture there")
        return configs(self, warm.stat().st_size)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {
            "preprocessing": models.preprocessing,
            "preprocessing_dali": f"{models.preprocessing}_dali",
            "resnet50_onnx": f"{models.network}_{CPU.ending}",
            "postprocessing": models.postprocessing,
        }

    def first_model(self, layout: Layout) -> str:
        named = self.models.preprocessing
        return {"python": named, "dali": f"{named}_dali"}[layout.decoding.step]

    def programs(self, layout: Layout) -> list[str]:
        one_step = [self.network_model(CPU)] if layout.one_step else []
        return [self.first_model(layout), *one_step, self.models.postprocessing]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.network}_{engine.ending}"

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        from bundle_serving.pictures import Transform  # which loads Pillow

        how = layout.decoding
        transform = Transform(
            **made.manifest.transform, decode=how.decode, max_megapixels=how.max_megapixels
        )
        decoding = [self.first_model(layout)]
        decoding += [self.network_model(CPU)] if layout.one_step else []
        return {model: {"transform.json": transform.dump()} for model in decoding}

    def variant(self, model: str, layout: Layout) -> str:
        both = (self.ensemble, self.network_model(CPU))
        if not (layout.one_step and model in both):
            return super().variant(model, layout)
        if not (folders.model_folder(model) / "configs" / f"{ONE_STEP}.pbtxt").exists():
            raise UserError(
                f"{model} was written by an earlier release, without what STEPS=1 needs",
                "use STEPS=3, or write it again: .venv/bin/python -m scripts.recipes.write "
                f"--recipe {shlex.quote(str(self.beside(self._name)))} "
                f"--out {shlex.quote(str(folders.own().models))}",
            )
        return ONE_STEP

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        pixels = [3, *sides(made.manifest.transform["crop"])]
        classes = [made.manifest.onnx["classes"]]
        if member.name == self.first_model(layout):
            member.output[0].dims[:] = pixels
            if layout.decoding.step == "dali":
                threads = layout.preprocessing.instances * layout.preprocessing.threads
                member.parameters["num_threads"].string_value = str(threads)
            else:
                share(member, layout.preprocessing)
        elif member.name == self.network_model(layout.engine):
            member.input[0].dims[:] = pixels
            member.model_warmup[0].inputs["input"].dims[:] = pixels
            for scores in member.output:
                scores.dims[:] = classes
            if layout.one_step:
                decoding = member.parameters["decoding_threads"]
                decoding.string_value = str(layout.preprocessing.threads)
            if layout.engine is CPU:
                share(member, layout.network)
            elif layout.network.instances:
                member.instance_group[0].count = layout.network.instances
        elif member.name == self.models.postprocessing:
            warm = member.model_warmup[0].inputs["INPUT_0"]
            for tensor in (member.input[0], member.output[0], warm):
                tensor.dims[:] = classes
            if layout.engine is GPU:
                member.parameters[STAY].string_value = "no" if layout.scores_stay else "yes"
        elif member.name == self.ensemble:
            member.output[0].dims[:] = classes
            if not layout.one_step:
                member.ensemble_scheduling.step[0].model_name = self.first_model(layout)
        else:
            return False
        return True

    def label_lines(self, made: Workspace, repository: Path) -> str:
        return labels_of(made)

    @property
    def settings(self) -> tuple[str, ...]:
        return names(VERSION, CHECK)

    def deciding(self) -> tuple[str, ...]:
        return names(VERSION)

    def defaults(self) -> dict[str, str]:
        if self.source.endswith(WHOLE):
            network = {"ARCH": "", "WEIGHTS": str(self.beside(self.source))}
        else:
            named = self.weights in ("default", "random")
            file = self.weights if named else str(self.beside(self.weights))
            network = {"ARCH": self.source.removeprefix(TORCHVISION), "WEIGHTS": file}
        return network | {"PRECISION": self.precision}

    @property
    def labels_file(self) -> Path | None:
        """None if torchvision has labels for the architecture, or nobody has."""
        return None if self.labels in ("torchvision", "") else self.beside(self.labels)

    def export(self, settings: Settings, engine: Engine) -> Export:
        """A whole network as weights is the user's own, whatever ARCH says."""
        labels = self.labels_file
        words: list[str | Path] = ["--labels", labels] if labels else []
        samples = settings.photos("SAMPLES")
        if samples:
            words += ["--samples", samples]
        as_before = Settings.weights.name not in settings.given
        if not settings.weights.endswith(WHOLE):
            spec = Torchvision(settings.arch, settings.weights, engine.export, labels, samples)
            return Export("export", [*words, *spec.words], spec, as_before)
        network, how = Path(settings.weights), self.pictures.model_dump(mode="json")
        if is_ir(network):
            _require_for_ir(network.name, settings.precision, engine)
        words += ["--network", network, "--pictures", json.dumps(how)]
        words += [f"--output={self.output}"] if self.output else []
        words += ["--gives", self.gives] if self.gives else []
        if network.is_file() and (data := external_data(network)):
            words += ["--data", *data]
        foreign = Foreign(network, labels, how, self.output, self.gives, samples)
        return Export("adopt", words, foreign, as_before)

    def computes_in(self, settings: Settings) -> str:
        return settings.precision

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        crop = made.manifest.transform["crop"]
        return of_pixels("input", crop, settings.opt_batch, self.batch.max)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        if not self.answers:  # it is as the network is
            return
        of_its_own = "give it a pipeline of its own: make add-model NAME=…"
        found, name = made.manifest.onnx, made.manifest.describe()
        if found["classes"] != self.classes and made.manifest.identity.get("arch") != DRAWN:
            raise UserError(
                f"{name} has {found['classes']} classes, and the pipeline serves {self.classes}",
                of_its_own,
            )
        if (answers := found.get("answers", "single-label")) != self.answers:
            raise UserError(
                f"{name} is {answers}, and the pipeline {self.answers}",
                f"{of_its_own}, or say what it gives: OUTPUT=",
            )
        if not found.get("together", True) and self.batch.max > 1:
            raise UserError(
                f"{name} takes pictures one by one, and the pipeline up to {self.batch.max}",
                f"export it with a dynamic batch, or {of_its_own}",
            )
        if settings.preprocess == "dali":
            self._require_dali(name)

    def _require_dali(self, name: str) -> None:
        how = self.pictures
        odd = [getattr(how, key) for key, known in ON_GPU.items() if getattr(how, key) not in known]
        if isinstance(how.crop, tuple):
            odd.append("height and width")
        if odd:
            raise UserError(
                f"{name} wants pictures with {', '.join(odd)}, which PREPROCESS=dali cannot do",
                "serve with PREPROCESS=python: make up PREPROCESS=python",
            )

    def as_found(self, made: Workspace) -> Self:
        found = made.manifest.onnx
        pictures = Pictures.model_validate(self.pictures.model_dump() | made.manifest.transform)
        one_by_one = {"max": 1, "optimal": 1, "preferred": (1,)}
        together = found.get("together", True)
        batch = self.batch if together else self.batch.model_copy(update=one_by_one)
        update = {"pictures": pictures, "batch": batch, "classes": found["classes"]}
        return self.model_copy(update=update | {"answers": found.get("answers", "single-label")})

    @property
    def reading(self) -> str:
        return self.answers or "single-label"

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row: NDArray[Any] = answer["OUTPUT"][0]
        return np.nan_to_num(row, nan=np.inf)


def _require_for_ir(name: str, precision: str, engine: Engine) -> None:
    if engine is GPU:
        raise UserError(
            f"{name} is OpenVINO's, and TensorRT reads ONNX alone",
            "give the .onnx file that it was made from, or serve with FLAVOUR=cpu or FLAVOUR=local",
        )
    if precision == "int8":
        raise UserError(
            f"{name} is OpenVINO's, and PRECISION=int8 quantises ONNX alone",
            "give the .onnx file that it was made from, or quantise it with NNCF yourself",
        )


def configs(recipe: Image, warmup_bytes: int) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    usual = recipe.models.configs(
        preprocessing(recipe, warmup_bytes),
        network(recipe),
        network_on_gpu(recipe),
        postprocessing(recipe),
        partial(ensemble, recipe),
    )
    return usual | {
        f"{models.preprocessing}_dali/config.pbtxt": preprocessing_on_gpu(recipe, warmup_bytes),
        f"{models.network}_{CPU.ending}/configs/{ONE_STEP}.pbtxt": one_step(recipe, warmup_bytes),
        f"{models.ensemble}/configs/{ONE_STEP}.pbtxt": ensemble_of_one_step(recipe),
    }


def _file(name: str, length: int = -1) -> Tensor:
    ragged = "image files of different lengths share a batch"
    return Tensor(name, "UINT8", [length], ragged=ragged)


def _pixels(name: str, recipe: Image) -> Tensor:
    return Tensor(name, "UINT8", [3, *sides(recipe.pictures.crop)])


def _scores(name: str, recipe: Image) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Image, warmup_bytes: int) -> str:
    return pbtxt.program(
        "The bytes of an image file -> uint8 pixels, resized and cropped as the network was"
        " trained.\nCast and normalisation are the first nodes of the network's own graph.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [_file("INPUT_0")],
        [_pixels("OUTPUT_0", recipe)],
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        _warm_picture(recipe, warmup_bytes),
        pbtxt.parameter("threads", "1"),
    )


def preprocessing_on_gpu(recipe: Image, warmup_bytes: int) -> str:
    return pbtxt.config(
        "The bytes of an image file -> uint8 pixels, decoded and resized on the GPU:"
        " PREPROCESS=dali.",
        f"{recipe.models.preprocessing}_dali",
        pbtxt.backend("dali") + '\ndefault_model_filename: "dali.py"',
        recipe.batch.max,
        pbtxt.inputs(_file("INPUT_0")),
        pbtxt.outputs(_pixels("OUTPUT_0", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(
            1,
            "GPU",
            "One is enough: it keeps the GPU's decoder busy, and each takes GPU memory.",
        ),
        pbtxt.QUEUED,
        _warm_picture(recipe, warmup_bytes),
        pbtxt.parameter("num_threads", "4"),
    )


def _warm_picture(recipe: Image, length: int, tensor: str = "INPUT_0") -> str:
    name = recipe.warmup
    return pbtxt.warmup(name.partition(".")[0], pbtxt.file(_file(tensor, length), name))


def network(recipe: Image) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.onnx(
        "The network: pixels -> scores. In an NGC server the C++ ONNX Runtime backend runs this;"
        " in the\nPyPI server serving/bundle_serving/backends/onnxruntime does.",
        f"{recipe.models.network}_{CPU.ending}",
        recipe.batch.max,
        pbtxt.picture_network(pixels, _scores("output", recipe)),
        recipe.instances.network,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        threads=1,
    )


def one_step(recipe: Image, warmup_bytes: int) -> str:
    models, pixels, scores = recipe.models, _pixels("input", recipe), _scores("output", recipe)
    name = f"{models.network}_{CPU.ending}"
    return pbtxt.program(
        "STEPS=1, on a CPU: the bytes of an image file -> probabilities, decoded and computed by"
        " 1/model.py.\nPixels -> scores as well, as the network alone.",
        name,
        recipe.batch.max,
        [
            replace(pixels, format="FORMAT_NCHW", optional=True),
            replace(_file("INPUT"), optional=True),
        ],
        [replace(scores, labels=pbtxt.LABELS), _answer(recipe)],
        pbtxt.instances(recipe.instances.network, "CPU"),
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        _warm_picture(recipe, warmup_bytes, "INPUT"),
        pbtxt.parameter("threads", "1"),
        pbtxt.parameter("decoding_threads", "1"),
        pbtxt.parameter("answers", recipe.answers),
        pbtxt.parameter(
            "steps",
            f"{models.preprocessing},{name},{models.postprocessing}",
            "Whose work it does: so it is reported.",
        ),
    )


def network_on_gpu(recipe: Image) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.config(
        "The network on a GPU: a TensorRT plan, pixels -> scores.",
        f"{recipe.models.network}_{GPU.ending}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        *pbtxt.picture_network(pixels, _scores("output", recipe)),
        NEWEST_VERSION,
        pbtxt.instances(
            recipe.instances.network_on_gpu,
            "GPU",
            "Two: one copies while the other computes.",
        ),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        "optimization { cuda { graphs: true } }",
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
    )


def postprocessing(recipe: Image) -> str:
    scores = _scores("INPUT_0", recipe)
    return pbtxt.program(
        "The network's scores -> probabilities.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [scores],
        [_scores("OUTPUT_0", recipe)],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("answers", recipe.answers),
    )


def _answer(recipe: Image) -> Tensor:
    return Tensor("OUTPUT", "FP32", [recipe.classes], labels=pbtxt.LABELS)


def ensemble(recipe: Image, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: "; with the network on a GPU."}[engine]
    return _ensemble(
        recipe,
        where,
        Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
        Step(f"{models.network}_{engine}", {"input": "pixels"}, {"output": "scores"}),
        Step(models.postprocessing, {"INPUT_0": "scores"}, {"OUTPUT_0": "OUTPUT"}),
    )


def ensemble_of_one_step(recipe: Image) -> str:
    network = f"{recipe.models.network}_{CPU.ending}"
    step = Step(network, {"INPUT": "INPUT"}, {"OUTPUT": "OUTPUT"})
    return _ensemble(recipe, "; STEPS=1, on a CPU.", step)


def _ensemble(recipe: Image, where: str, *steps: Step) -> str:
    return pbtxt.ensemble(
        f"The bytes of an image file -> the probability of each class{where}",
        recipe.models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "UINT8", [-1]),
        [_answer(recipe)],
        *steps,
    )
