"""Image files -> what they show."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bundle_serving import agreement, own_steps
from bundle_serving.agreement import Agreement
from bundle_serving.networks import is_ir
from scripts.artefacts import packages
from scripts.artefacts.manifest import Foreign, Torchvision, external_data, why_export
from scripts.artefacts.shapes import of_pixels, sides
from scripts.artefacts.step import ADOPT, EXPORT, REFERENCE, REFERENCE_TORCH, TRY_POST
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import configs, folders
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count, ThreeSteps, set_count
from scripts.recipes.pictures import TORCHVISION, OfPictures, labels_of
from scripts.recipes.recipe import Contents, Export, Part, Trial
from scripts.settings.choices import DRAWN
from scripts.settings.settings import CHECK, VERSION, Settings, names

WHOLE = (".onnx", ".xml")  # files with networks, and not with weights alone
# Triton's parameter that decides whether a Python model's inputs are copied to the host.
STAY = "FORCE_CPU_ONLY_INPUT_TENSORS"
# Beside an exported network: what its post.py makes of the known scores.
READ = "read.npz"
WARMUPS = folders.MODELS / "preprocessing" / "warmup"
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


def _most_together(found: Mapping[str, Any]) -> int:
    """Of an export: with how many pictures at once it was compared; 0: with any."""
    return int(found.get("most_together", 0)) if found.get("together", True) else 1


class Image(ThreeSteps, OfPictures):
    """An image file -> the probability of each class."""

    kind: Literal["image"]
    source: str  # torchvision/ARCH, or the path of an .onnx or .xml file
    weights: str = "default"
    labels: str = ""  # torchvision, or a file's path; empty: an ONNX file's classes are numbered
    classes: Count | None = None  # left out: as its ensemble's config says
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    # Whether one of the labels is right, or any number of them. Empty: not known yet.
    answers: Literal["single-label", "multi-label", ""] = "single-label"
    output: str = ""  # of an ONNX file with several: the one with the answer
    # What an ONNX file gives. Empty: its numbers tell.
    gives: Literal["", "scores", "probabilities", "multi-label"] = ""
    pictures: Pictures
    # Functions of the user's own in the place of the steps before and after the network: files.
    pre: str = ""
    post: str = ""
    requirements: str = ""  # a file that names the packages that these import
    warmup: str = ""  # a file in preprocessing/warmup, if not its template's

    example: ClassVar[str] = str(folders.MODELS / "resnet50.yaml")
    head: ClassVar[str] = "# Pictures -> what they show: `make classify MODEL={name} IMG=…`.\n"

    @property
    def model_names(self) -> dict[str, str]:
        names = super().model_names
        return names | {"preprocessing_dali": f"{self.models.preprocessing}_dali"}

    @property
    def class_count(self) -> int:
        return self.classes or int(self.config.output[0].dims[0])

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        self._set_sizes(member, self.pictures.crop, self.classes)
        if self.warmup:
            configs.set_warmup_file(member, WARMUPS / self.warmup)
        if "answers" in member.parameters:
            configs.set_parameters(member, answers=self.answers)
        if "steps" in member.parameters:
            models = self.models
            steps = models.preprocessing, member.name, models.postprocessing
            configs.set_parameters(member, steps=",".join(steps))

    def _set_sizes(self, member: Any, crop: Any, classes: int | None) -> None:
        models, pixels, scores = self.models, [3, *sides(crop)], [classes] if classes else []
        if member.name.removesuffix("_dali") == models.preprocessing:
            configs.set_dims(member, {"OUTPUT_0": pixels})
        elif member.name == models.postprocessing:
            configs.set_dims(member, {"INPUT_0": scores, "OUTPUT_0": scores})
        else:
            configs.set_dims(member, {"input": pixels, "output": scores, "OUTPUT": scores})

    def first_model(self, layout: Layout) -> str:
        named = self.models.preprocessing
        return {"python": named, "dali": f"{named}_dali"}[layout.decoding.step]

    def programs(self, layout: Layout) -> list[str]:
        one_step = [self.network_model(CPU)] if layout.one_step else []
        return [self.first_model(layout), *one_step, self.models.postprocessing]

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        from bundle_serving.pictures import Transform  # which loads Pillow

        how = layout.decoding
        transform = Transform(
            **made.manifest.transform, decode=how.decode, max_megapixels=how.max_megapixels
        )
        programs = self.programs(layout)
        decoding, reading = programs[:-1], programs[1:]
        found: dict[str, dict[str, Path | str]] = {
            model: {"transform.json": transform.dump()} for model in decoding
        }
        for model in reading if self.post else ():
            found.setdefault(model, {})[own_steps.AFTER] = self.read_beside(self.post)
        if needed := self.requirements_file:
            for model in found if self.pre else reading:
                found[model] |= packages.list_files(needed)
        return found

    @property
    def _packages(self) -> str:
        """Where the steps of a build find them: they run in the project's folder."""
        needed = self.requirements_file
        return str(packages.folder_of(needed).relative_to(ROOT)) if needed else ""

    def trial(self, made: Workspace) -> Trial | None:
        if not self.post:
            return None
        known = self._scores_file(made)
        given = {"post": self.path_beside(self.post), "packages": self._packages}
        return Trial(TRY_POST, given | {"scores": known, "out": made.onnx / READ})

    def compare_known(self, made: Workspace, rows: NDArray[Any]) -> Agreement:
        if not self.post:
            return super().compare_known(made, rows)
        read = np.load(made.onnx / READ)["probabilities"][-len(rows) :]
        return agreement.compare_known(read, rows, "multi-label")

    def variant(self, model: str, layout: Layout) -> str:
        both = (self.ensemble, self.network_model(CPU))
        if not (layout.one_step and model in both):
            return super().variant(model, layout)
        if not (folders.model_folder(model) / "configs" / f"{ONE_STEP}.pbtxt").exists():
            raise UserError(
                f"{model} was written by an earlier release, without what STEPS=1 needs",
                "use STEPS=3, or have its folders copied again: rm -r "
                f"{shlex.quote(str(folders.own().models / self.ensemble))}, then make up "
                f"MODEL={self.ensemble}",
            )
        return ONE_STEP

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        first, network = self.first_model(layout), self.network_model(layout.engine)
        if member.name not in (first, network, self.models.postprocessing, self.ensemble):
            return False
        crop, classes = made.manifest.transform["crop"], made.manifest.onnx["classes"]
        self._set_sizes(member, crop, classes)
        if member.name == first and layout.decoding.step == "dali":
            threads = layout.preprocessing.instances * layout.preprocessing.threads
            configs.set_parameters(member, num_threads=threads)
        elif member.name == first:
            configs.set_share(member, layout.preprocessing)
        elif member.name == network:
            if layout.one_step:
                configs.set_parameters(member, decoding_threads=layout.preprocessing.threads)
            if layout.engine is CPU:
                configs.set_share(member, layout.network)
            else:
                set_count(member, layout.network.instances)
        elif member.name == self.models.postprocessing and layout.engine is GPU:
            stay = "no" if layout.scores_stay else "yes"
            configs.set_parameters(member, **{STAY: stay})
        elif member.name == self.ensemble and not layout.one_step:
            member.ensemble_scheduling.step[0].model_name = first
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
            network = {"ARCH": "", "WEIGHTS": str(self.path_beside(self.source))}
        else:
            named = self.weights in ("default", "random")
            file = self.weights if named else str(self.path_beside(self.weights))
            network = {"ARCH": self.source.removeprefix(TORCHVISION), "WEIGHTS": file}
        return network | {"PRECISION": self.precision}

    @property
    def labels_file(self) -> Path | None:
        """None if torchvision has labels for the architecture, or nobody has."""
        return None if self.labels in ("torchvision", "") else self.path_beside(self.labels)

    def export(self, settings: Settings, engine: Engine) -> Export:
        """A whole network as weights is the user's own, whatever ARCH says."""
        labels, samples = self.labels_file, settings.photos("SAMPLES")
        as_before = Settings.weights.name not in settings.given
        if self.source.endswith(WHOLE) and as_before and Settings.arch.name in settings.given:
            raise UserError(
                f"ARCH={settings.arch} is given, but {self.ensemble} is a network of its own",
                "omit ARCH; torchvision's instead: make up MAIN=resnet50 ARCH=…",
            )
        if not settings.weights.endswith(WHOLE):
            if not settings.arch:
                raise UserError(
                    f"{Path(settings.weights).name} is no whole network, as {self.ensemble} is",
                    "give ONNX, an IR, TorchScript or torch.export; or add it: make add-model",
                )
            spec = Torchvision(
                *(settings.arch, settings.weights, engine.export, labels),
                samples=samples,
                pre=self.path_beside(self.pre) if self.pre else None,
                packages=self._packages or None,
            )
            return Export(EXPORT, spec, as_before)
        network, how = Path(settings.weights), self.pictures.model_dump(mode="json")
        if self.pre:
            how |= {"program": self.read_beside(self.pre), "packages": self._packages}
        if is_ir(network):
            _require_for_ir(network.name, settings.precision, engine)
        # For a container, which sees only what it is told of.
        data = tuple(external_data(network)) if network.is_file() else ()
        foreign = Foreign(network, labels, how, self.output, self.gives, samples, data)
        return Export(ADOPT, foreign, as_before)

    def computes_in(self, settings: Settings) -> str:
        return settings.precision

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        crop = made.manifest.transform["crop"]
        return of_pixels("input", crop, settings.opt_batch, self.most)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        if not self.answers:  # it is as the network is
            return
        of_its_own = "give it a pipeline of its own: make add-model NAME=…"
        found, name, serves = made.manifest.onnx, made.manifest.describe(), self.class_count
        if found["classes"] != serves and made.manifest.identity.get("arch") != DRAWN:
            raise UserError(
                f"{name} has {found['classes']} classes, and the pipeline serves {serves}",
                of_its_own,
            )
        if (answers := found.get("answers", "single-label")) != self.answers:
            raise UserError(
                f"{name} is {answers}, and the pipeline {self.answers}",
                f"{of_its_own}, or say what it gives: gives, in the recipe",
            )
        if (most := _most_together(found)) and most < self.most:
            how = "one by one" if most == 1 else f"up to {most} at once"
            raise UserError(
                f"{name} takes pictures {how}, and the pipeline up to {self.most}",
                f"export it with a dynamic batch, or {of_its_own}",
            )
        if settings.preprocess == "dali":
            self._require_dali(name)
        if self.post and settings.postprocess == "gpu":
            raise UserError(
                f"{self.post} of {self.ensemble} computes on the CPU, and the server runs with "
                "POSTPROCESS=gpu",
                "serve with POSTPROCESS=cpu: make up POSTPROCESS=cpu",
            )

    def _require_dali(self, name: str) -> None:
        how = self.pictures
        odd = [getattr(how, key) for key, known in ON_GPU.items() if getattr(how, key) not in known]
        if isinstance(how.crop, tuple):
            odd.append("height and width")
        if self.pre:
            odd = ["a program of its own"]
        if odd:
            raise UserError(
                f"{name} wants pictures with {', '.join(odd)}, which PREPROCESS=dali cannot do",
                "serve it with PREPROCESS=python",
            )

    def as_found(self, made: Workspace) -> Self:
        found = made.manifest.onnx
        seen = {key: made.manifest.transform.get(key) for key in Pictures.model_fields}
        known = {key: value for key, value in seen.items() if value is not None}
        pictures = Pictures.model_validate(self.pictures.model_dump() | known)
        batch, most = self.batch, _most_together(found)
        if most and not (batch.max and batch.max <= most):
            batch = batch.model_copy(update={"max": most, "optimal": most, "preferred": (most,)})
        update = {"pictures": pictures, "batch": batch, "classes": found["classes"]}
        return self.model_copy(update=update | {"answers": found.get("answers", "single-label")})

    def ask_original(self, made: Workspace, settings: Settings, engine: Engine) -> Trial:
        """Where its files are gone, or others by now, what was exported of them."""
        export = self.export(settings, engine)
        if self.post:  # which reads the scores of what was exported
            given = {"post": self.path_beside(self.post), "packages": self._packages}
            return Trial(REFERENCE, given)
        try:
            is_there = why_export(made.onnx, export.spec) is None
        except UserError:
            is_there = False
        if not is_there:
            return Trial(REFERENCE, {})
        return Trial(REFERENCE if export.step is ADOPT else REFERENCE_TORCH, export.spec)

    @property
    def reading(self) -> str:
        return self.answers or "single-label"


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
