"""Every pipeline, asked by its command; and what plain PyTorch says of the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmark.foreign.case import farthest
from bundle_serving import PIPELINE
from bundle_serving.infer import Answer
from tests.project import ROOT, Project
from tests.wav_files import BELL

if TYPE_CHECKING:  # which import PyTorch, or much else
    from kinds.detection.detectors import Whole
    from kinds.segmentation.segmenters import Whole as WholeSegmenter
    from kinds.sound.recipe import Sound
    from kinds.sound.serving.sounds import Hearing
    from kinds.sound.source import Listener

# Beside the first one.
OTHERS = ("places", "cascade", "sentiment", "detection", "segmentation", "sounds")

MODELS = (
    *("preprocessing", "resnet50_onnx", "postprocessing", PIPELINE),
    *("preprocess", "classification_places", "postprocess", "places_ensemble"),
    *("sentiment_preprocessing", "sentiment_onnx", "sentiment_postprocessing"),
    *("sentiment_ensemble", "mobilenet_v2_onnx", "cascade_choice", "cascade"),
    *("detection_preprocessing", "detector_onnx", "detection_postprocessing", "detection"),
    *("sounds_preprocessing", "listener_onnx", "sounds_postprocessing", "sounds"),
    *("segmentation_preprocessing", "segmenter_onnx", "segmentation_postprocessing"),
    "segmentation",
)

CLASSES = 365
CHECKPOINT = "resnet50_places365.pth.tar"
SSDLITE = "ssdlite320_mobilenet_v3_large"
LRASPP = "lraspp_mobilenet_v3_large"


def ask_by_command(project: Project, name: str, photo: Path) -> Any:
    """By its own: the answer, as JSON."""
    command, asked = {
        "": ("classify", {"IMG": str(photo)}),
        "places": ("classify", {"IMG": str(photo), "MODEL": "places"}),
        "cascade": ("classify", {"IMG": str(photo), "MODEL": "cascade"}),
        "sentiment": ("sentiment", {"TEXT": "I love this place!"}),
        "detection": ("detect", {"IMG": str(photo)}),
        "sounds": ("classify", {"MODEL": "sounds", "SOUND": str(BELL)}),
        "segmentation": ("segment", {"IMG": str(photo)}),
    }[name]
    return json.loads(project.made(command, JSON="1", **asked).splitlines()[-1])


def not_ready(project: Project) -> set[str]:
    shown = project.made("models", COLUMNS="200")
    return set(MODELS) - set(re.findall(r"^ ?(\w+) +\d+ +READY", shown, re.MULTILINE))


def pytorch(module: Any, transform: Any, photos: list[Path]) -> list[NDArray[np.float32]]:
    import torch

    with torch.inference_mode():
        return [
            module(transform(Image.open(photo).convert("RGB"))[None]).softmax(1)[0].numpy()
            for photo in photos
        ]


def pictures_by_pytorch(weights: Path, photos: list[Path]) -> list[NDArray[np.float32]]:
    """By mobilenet_v2, with torchvision's own transforms."""
    from scripts.steps.manifest import Torchvision
    from scripts.steps.networks import build
    from scripts.steps.vision import torchvision

    published = torchvision.models.get_model_weights("mobilenet_v2").IMAGENET1K_V1
    network = build(Torchvision("mobilenet_v2", str(weights))).module
    return pytorch(network, published.transforms(), photos)


def checkpoint_of_places(folder: Path) -> None:
    """The form that Places365 publishes: trained on several GPUs, with other things beside."""
    import torch

    from kinds.places.export import CATEGORIES
    from scripts.steps.vision import torchvision

    torch.manual_seed(1)
    network = torchvision.models.resnet50(weights=None, num_classes=CLASSES)
    state = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
    torch.save(
        {"epoch": 90, "arch": "resnet50", "state_dict": state, "best_prec1": 54.7},
        folder / CHECKPOINT,
    )
    lines = [f"/p/place_{number} {number}\n" for number in range(CLASSES)]
    (folder / CATEGORIES).write_text("".join(lines))


def places_by_pytorch(weights: Path, photos: list[Path]) -> list[NDArray[np.float32]]:
    """With the transforms that Places365's networks were trained with."""
    from kinds.places.recipe import Places
    from scripts.recipes.schema import load
    from scripts.steps.networks import read_state
    from scripts.steps.vision import torchvision

    recipe = load(ROOT / "kinds" / "places" / "places.yaml")
    assert isinstance(recipe, Places)
    how = recipe.pictures
    usual = torchvision.transforms.Compose(
        [
            torchvision.transforms.Resize((how.side, how.side)),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize(how.mean, how.std),
        ]
    )
    network = torchvision.models.resnet50(weights=None, num_classes=CLASSES).eval()
    network.load_state_dict(read_state(weights))
    return pytorch(network, usual, photos)


# Width and height.
SIZES = (
    *((640, 480), (480, 640), (320, 320), (1024, 768), (200, 900)),
    *((97, 61), (1280, 720), (500, 375), (64, 64), (333, 1000)),
)


def of_mixed_sizes(folder: Path) -> list[Path]:
    """The drawn mug, each time seen otherwise."""
    from scripts.steps.samples import of_sizes

    photos = []
    for number, file in enumerate(of_sizes(SIZES)):
        photos.append(folder / f"{number}.png")
        photos[-1].write_bytes(file)
    return photos


def boxes_by_torchvision(detector: Whole, photos: list[Path]) -> list[Answer]:
    """By its own code from the picture to the boxes, with enough of them to tell something."""
    expected = [detector.find(Image.open(photo)) for photo in photos]
    counts = [len(each["SCORES"][0]) for each in expected]
    assert min(counts) > 0 and len(set(counts)) > 3, counts
    return expected


def of_mixed_shapes(folder: Path) -> list[Path]:
    """Some of them, without those that are refused for being too long."""
    photos = zip(of_mixed_sizes(folder), SIZES, strict=True)
    return [photo for photo, size in photos if max(size) <= 3 * min(size)][:6]


def masks_by_torchvision(segmenter: WholeSegmenter, photos: list[Path]) -> list[NDArray[np.uint8]]:
    """By its own code from the picture to the classes, with enough of them to tell something."""
    masks = [segmenter.see(Image.open(photo)) for photo in photos]
    assert all(np.bincount(mask.ravel()).max() < 0.95 * mask.size for mask in masks)
    return masks


def ask_for_boxes(http: str, model: str, *files: bytes) -> Answer:
    """In one request, padded to the same length."""
    import tritonclient.http

    longest = max(map(len, files))
    data = np.array([list(file.ljust(longest, b"\0")) for file in files], np.uint8)
    client = tritonclient.http.InferenceServerClient(http)
    try:
        tensor = tritonclient.http.InferInput("INPUT", data.shape, "UINT8")
        tensor.set_data_from_numpy(data)
        answer = client.infer(model, [tensor])
        return {name: answer.as_numpy(name) for name in ("BOXES", "LABELS", "SCORES")}
    finally:
        client.close()


def assert_same_boxes(expected: Answer, found: Answer, threshold: float) -> None:
    """Within a pixel, and a hundredth: which only what is that near to the threshold may lack."""
    assert farthest(expected, found, threshold) <= 0.01, (expected, found)


def sounds_recipe() -> Sound:
    from kinds.sound.recipe import Sound
    from scripts.recipes.schema import load

    recipe = load(ROOT / "kinds" / "sound" / "sounds.yaml")
    assert isinstance(recipe, Sound)
    return recipe


def listener_of(weights: str, **changes: Any) -> Listener:
    from kinds.sound.source import Listener

    return Listener(weights, sounds_recipe().hearing.model_dump(), **changes)


def sounds_by_pytorch(weights: Path, files: list[bytes]) -> list[NDArray[np.float32]]:
    """Each by itself, window by window: log-mel bands by torch.stft, and the mean of the
    probabilities."""
    import torch

    from kinds.sound import network
    from kinds.sound.serving import sounds, wav

    how, found = sounds_recipe().hearing.as_hearing, []
    module = network.build(listener_of(str(weights))).module
    for file in files:
        sound = wav.read(file, how.longest)
        windows = sounds.cut(sounds.resample(sound.samples, sound.rate, how.rate), how)
        heard = log_mel_by_pytorch(windows, how)
        with torch.inference_mode():
            found.append(module(heard[:, None].float()).softmax(1).mean(0).numpy())
    return found


def log_mel_by_pytorch(windows: NDArray[np.float32], how: Hearing) -> Any:
    """The formula of torchaudio.transforms.MelSpectrogram with center=False, clamped and
    logarithmic."""
    import torch

    spectrum = torch.stft(
        torch.from_numpy(windows).double(),
        how.fft,
        how.hop,
        window=torch.hann_window(how.fft, dtype=torch.float64),
        center=False,
        return_complex=True,
    )
    frequencies = torch.linspace(0, how.rate / 2, how.fft // 2 + 1, dtype=torch.float64)
    ends = [2595 * np.log10(1 + hertz / 700) for hertz in (how.low, how.high)]
    points = 700 * (10 ** (torch.linspace(*ends, how.mels + 2, dtype=torch.float64) / 2595) - 1)
    slopes = points[None] - frequencies[:, None]
    falling = -slopes[:, :-2] / points.diff()[:-1]
    rising = slopes[:, 2:] / points.diff()[1:]
    filters = torch.minimum(falling, rising).clamp(min=0)
    power = spectrum.abs() ** 2
    return (filters.T @ power).clamp(min=1e-6).log()
