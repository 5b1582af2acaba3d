"""torchvision's ImageNet classifiers: architecture, weights, and picture sizes."""

from __future__ import annotations

import argparse
import copy
import hashlib
import re
import urllib.error
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bundle_serving.pictures import Transform, to_pixels
from scripts.artefacts.manifest import NOTHING, OfTorchvision, Torchvision, lines_of, of_file
from scripts.artefacts.samples import RANDOM_PICTURES, make_varied, noise
from scripts.base.errors import NoWeights, UserError, of_the_machine
from scripts.settings.choices import DRAWN
from scripts.steps.vision import torchvision

if TYPE_CHECKING:
    from scripts.steps.checked import Made

# Where training scripts put the weights in their files.
BENEATH = ("state_dict", "model_state_dict", "model")
# Published files of DenseNet have a point more in such names than the network.
OLD_NAME = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")
# What to give in the place of weights that do not fit.
MADE_THERE = "give the state dict of one that torchvision made, fine-tuned or not"
ITS_ARCH = (
    "give the ARCH= that the file belongs to, and LABELS= with a line for each class; or other "
    "weights: WEIGHTS=default, random or a file"
)


@dataclass(frozen=True)
class Network:
    module: nn.Module  # normalised float pixels -> scores
    transform: dict[str, Any]
    mean: list[float]
    std: list[float]
    labels: list[str]
    weights: dict[str, str]

    def as_made(
        self,
        identity: dict[str, Any],
        untrained: bool,
        answers: str = "single-label",
        more: Mapping[str, Any] = NOTHING,
    ) -> Made:
        """Before it is compared with its export."""
        from scripts.steps.checked import Made

        return Made(
            identity=identity,
            untrained=untrained,
            transform=self.transform,
            labels=self.labels,
            weights=self.weights | {"loaded_sha256": digest_of(self.module)},
            called="PyTorch",
            answers=answers,
            more=more,
        )


class Pixels(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """uint8 pixels -> float32 scores; cast and normalisation are part of the graph."""

    def __init__(self, network: Network, precision: str = "fp32") -> None:
        super().__init__()
        self.network = Halved(network.module) if precision == "fp16" else network.module
        for name, values in (("mean", network.mean), ("std", network.std)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1) * 255)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        normalised = (pixels.to(torch.float32) - self.mean) / self.std
        scores: torch.Tensor = self.network(normalised)
        return scores


class Halved(nn.Module):  # type: ignore[misc]
    """Normalised float32 pixels -> float32 scores, in half precision inside."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inside = copy.deepcopy(module).half()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.inside(pixels.to(torch.float16)).to(torch.float32)
        return scores


def make_asker(model: nn.Module) -> Callable[..., NDArray[Any]]:
    def ask(*given: NDArray[Any]) -> NDArray[Any]:
        with torch.inference_mode():
            scores: NDArray[Any] = model(*map(torch.from_numpy, given)).numpy()
        return scores

    return ask


def build(wanted: Torchvision) -> Network:
    network = _of_drawings(wanted) if wanted.arch == DRAWN else _of_torchvision(wanted)
    if not wanted.pre:
        return network
    own = {"program": wanted.pre.read_text(), "packages": wanted.packages or ""}
    return replace(network, transform=network.transform | own)


def _of_drawings(wanted: Torchvision) -> Network:
    from scripts.artefacts.drawn import network
    from scripts.artefacts.drawn.drawings import SIDE
    from scripts.artefacts.drawn.things import NAMES

    module = network.network()
    if wanted.weights == "default":
        wanted = replace(wanted, weights=str(network.WEIGHTS))
    return Network(
        module=module.eval(),
        transform={"resize": SIDE, "crop": SIDE, "interpolation": "bilinear"},
        mean=network.MEAN,
        std=network.STD,
        labels=lines_of(wanted.labels) or [f"drawn {name}" for name in NAMES],
        weights=load_weights(module, wanted, None, DRAWN, ITS_ARCH),
    )


def _of_torchvision(wanted: Torchvision) -> Network:
    published = torchvision.models.get_model_weights(wanted.arch)
    known = list(published.DEFAULT.meta["categories"])
    labels = lines_of(wanted.labels) or known
    if wanted.weights == "default" and len(labels) != len(known):
        raise UserError(
            f"{wanted.labels} has {len(labels)} labels, and torchvision's weights for "
            f"{wanted.arch} {len(known)} classes",
            "give the WEIGHTS= that these labels belong to",
        )
    entry = _find_entry(wanted, published)
    torch.manual_seed(0)
    module = torchvision.models.get_model(
        wanted.arch, weights=None, num_classes=len(labels), **_list_unsaid(wanted, entry)
    )
    remedy = ITS_ARCH if wanted.setting == "WEIGHTS" else MADE_THERE
    of = f"{wanted.arch} with {len(labels)} classes"
    origin = load_weights(module, wanted, entry, of, remedy)
    recipe = entry.transforms()
    return Network(
        module=module.eval(),
        transform={
            "resize": recipe.resize_size[0],
            "crop": recipe.crop_size[0],
            "interpolation": recipe.interpolation.value,
        },
        mean=list(recipe.mean),
        std=list(recipe.std),
        labels=labels,
        weights=origin,
    )


def _list_unsaid(wanted: Torchvision, entry: Any) -> dict[str, Any]:
    """What torchvision's own functions set where they are given weights, which do not say it."""
    if wanted.arch.startswith("vit_"):
        return {"image_size": entry.meta["min_size"][0]}
    if not wanted.scales_input:
        return {}
    names = read_state(Path(wanted.weights)) if wanted.is_file else ("aux",)
    has_aux = any("aux" in name.lower() for name in names)
    return {"transform_input": True, "aux_logits": has_aux, "init_weights": False}


def download_weights(arch: str, entry: Any, ways_out: str) -> dict[str, torch.Tensor]:
    """The weights that torchvision publishes."""
    try:
        state: dict[str, torch.Tensor] = entry.get_state_dict(progress=True, check_hash=True)
    except urllib.error.URLError as fault:
        raise NoWeights(
            f"torchvision's weights for {arch} cannot be downloaded ({fault.reason})", ways_out
        ) from None
    except (OSError, RuntimeError) as fault:  # truncated, disk full, wrong hash
        cause = f"the download of {arch}'s weights failed ({fault})"
        raise of_the_machine(fault) or NoWeights(cause, ways_out) from None
    return state


def _find_entry(wanted: Torchvision, published: Any) -> Any:
    """torchvision's files have their hash in the name; other files get the picture sizes that the
    architecture was first published with (short side 256, crop 224 for most)."""
    if wanted.weights == "default":
        return published.DEFAULT
    digest = of_file(Path(wanted.weights), None).get("sha256", "")
    for entry in published:
        if digest.startswith(Path(entry.url).stem.rsplit("-", 1)[-1]):
            return entry
    return next(iter(published))


def load_weights(
    module: nn.Module, wanted: OfTorchvision, published: Any, of: str, remedy: str = MADE_THERE
) -> dict[str, str]:
    """Returns where they are from. `published`: by torchvision; `of`: what a file's are to be of,
    and `remedy`, if they are not."""
    if wanted.is_file:
        path = Path(wanted.weights)
        fill_weights(module, read_state(path), of, path, remedy)
        return of_file(path, None)
    if wanted.is_untrained:
        return {"source": "random, seed 0"}
    state = download_weights(wanted.arch, published, wanted.ways_out)
    fill_weights(module, state, of, Path(published.url), remedy)
    return {"source": f"torchvision {published}", "url": published.url}


def read_state(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            loaded: Any = load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is refused
                # What it was trained with: torchvision's own script saves that beside the weights.
                with torch.serialization.safe_globals([argparse.Namespace]):
                    loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # torch and safetensors raise a dozen kinds for other files
        beside = re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", str(fault))
        raise UserError(
            f"{path.name} cannot be read as weights"
            + (f": it holds {beside[1]}, which is code" if beside else ""),
            "give a state dict: torch.save(model.state_dict(), path), or .safetensors",
        ) from None
    beneath = [loaded.get(key) for key in BENEATH] if isinstance(loaded, dict) else []
    inner = next((each for each in beneath if isinstance(each, dict)), loaded)
    if not isinstance(inner, dict):
        raise UserError(
            f"{path.name} contains a {type(inner).__name__}, not a state dict",
            "save it with torch.save(model.state_dict(), path)",
        )
    if not any(isinstance(each, torch.Tensor) for each in inner.values()):
        raise UserError(
            f"{path.name} contains {', '.join(map(str, [*inner][:5])) or 'nothing'}, "
            "not a state dict",
            "save it with torch.save(model.state_dict(), path)",
        )
    state = {str(name): tensor for name, tensor in inner.items()}
    # Lightning, torch.compile and DataParallel put one before all names, as no network here does.
    while len({name.split(".")[0] for name in state}) == 1 and all("." in each for each in state):
        state = {name.partition(".")[2]: tensor for name, tensor in state.items()}
    return state


def fill_weights(
    module: nn.Module, state: dict[str, torch.Tensor], of: str, path: Path, remedy: str = MADE_THERE
) -> nn.Module:
    """With the weights of a file."""
    named: Any = OrderedDict((OLD_NAME.sub(r"\1\2", name), state[name]) for name in state)
    # MNASNet asks for its version; with BatchNorm's, older files would lack what it counts now.
    named._metadata = getattr(state, "_metadata", {"": {"version": module._version}})
    try:
        module.load_state_dict(named)
    except RuntimeError as fault:
        detail = " ".join(str(fault).split())[:160]
        if foreign := [name for name in named if name not in module.state_dict()]:
            detail = f"its {foreign[0]} is none of them; {detail}"
            remedy = _tell_alone(module, state) or remedy
        raise UserError(f"{path.name} has no weights of {of} ({detail}…)", remedy) from None
    return module


def _tell_alone(module: nn.Module, state: dict[str, torch.Tensor]) -> str:
    """The remedy if the file does have the weights: behind a prefix, or with others beside them."""
    needed = [*module.state_dict()]
    for prefix in (name.removesuffix(needed[0]) for name in state if name.endswith(needed[0])):
        if all(prefix + name in state for name in needed):
            behind = f', and without "{prefix}" before their names' if prefix else ""
            return f"save the network's weights alone{behind}: {needed[0]} and so on"
    return ""


def load_fine_tuned(
    wanted: OfTorchvision,
    published: Any,
    count: Callable[[dict[str, torch.Tensor]], int],
    settle: Callable[[nn.Module], None],
) -> tuple[nn.Module, int, dict[str, str]]:
    """A network, how many classes it has, and where its weights are from. `published`: by
    torchvision; `count`: the classes of a file's weights; `settle`: what makes an untrained network
    say something."""
    classes = len(published.meta["categories"])
    if wanted.is_file:
        classes = count(read_state(Path(wanted.weights)))
    module = make_module(wanted.arch, classes)
    if wanted.is_untrained:
        settle(module)
    return module, classes, load_weights(module, wanted, published, wanted.arch)


def make_module(arch: str, classes: int) -> nn.Module:
    """Without training."""
    torch.manual_seed(0)
    return torchvision.models.get_model(
        arch, weights=None, weights_backbone=None, num_classes=classes
    )


def set_to_pictures(module: nn.Module, run: Callable[[torch.Tensor], Any], how: Transform) -> None:
    """A network without training says the same of everything, unless its layers have seen pictures.
    `run`: pixels, from 0 to 1, through all of its layers."""
    module.train()
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = None  # the mean of what it sees
    seen = [*noise(how), *(to_pixels(file, how) for file in make_varied()[:RANDOM_PICTURES])]
    with torch.no_grad():
        run(torch.from_numpy(np.stack(seen)) / 255)


def digest_of(module: nn.Module) -> str:
    """A hash of all weights as loaded, wherever they came from."""
    hasher = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        hasher.update(name.encode())
        hasher.update(tensor.contiguous().numpy().tobytes())
    return hasher.hexdigest()
