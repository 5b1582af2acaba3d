"""Networks as libraries keep and export them: torchvision, timm, Hugging Face, scikit-learn. Their
weights are random, with a last layer that tells pictures apart."""

import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from benchmark.foreign import graphs
from benchmark.foreign.by_quantiser import EIGHT_BITS, by_onnxruntime
from benchmark.foreign.case import (
    Array,
    Case,
    Truth,
    open_picture,
    pictures,
    same,
    sigmoid,
    softmax,
)
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import timm  # isort: skip
import transformers  # isort: skip

CLASSES = 7
Feed = Callable[[bytes], Any]  # an image file -> what the network is fed, [1, 3, height, width]


def sharpen_scores(module: Any, feed: Feed) -> Any:
    """With scores whose probabilities differ from picture to picture; of random weights they would
    hardly. Changes the last layer, and what normalisation has seen."""
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm2d):
            each.momentum = None  # all that it sees counts the same
    with torch.no_grad():
        module.train()(torch.cat([feed(file) for file in pictures(8)]))
    module.eval()
    kinds = (torch.nn.Linear, torch.nn.Conv2d)  # a convolution: squeezenet's
    last = [each for each in module.modules() if isinstance(each, kinds)][-1]
    with torch.inference_mode():
        seen = torch.cat([module(feed(file)) for file in pictures(6)])
    with torch.no_grad():
        factor = 2 / seen.std(0).mean().clamp(min=1e-6)
        last.weight *= factor
        if last.bias is not None:
            last.bias *= factor
            last.bias -= seen.mean(0) * factor
    return module


def right(module: Any, feed: Feed, read: Callable[[Array], Array]) -> Truth:
    def truth(file: bytes) -> Array:
        with torch.inference_mode():
            return read(module(feed(file))[0].double().numpy())

    return truth


# How people export them.


def by_dynamo(module: Any, example: Any, path: Path, fixed: bool = False) -> None:
    shapes = None if fixed else ({0: torch.export.Dim("batch")},)
    torch.onnx.export(
        *(module, (example,), path),
        dynamic_shapes=shapes,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def by_tracing(module: Any, example: Any, path: Path, fixed: bool = False) -> None:
    names = {"input_names": ["image"], "output_names": ["logits"]}
    axes = None if fixed else {"image": {0: "batch"}, "logits": {0: "batch"}}
    torch.onnx.export(module, (example,), path, dynamo=False, dynamic_axes=axes, **names)


def as_torchscript(module: Any, example: Any, path: Path) -> None:
    torch.jit.trace(module, example).save(path.with_suffix(".pt"))


def as_program(module: Any, example: Any, path: Path) -> None:
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(module, (example,), dynamic_shapes=shapes)
    torch.export.save(program, path.with_suffix(".pt2"))


def quietly(make: Callable[[Path], Truth]) -> Callable[[Path], Truth]:
    def make_quietly(folder: Path) -> Truth:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(folder)

    return make_quietly


# torchvision's

SIZES = {"resize": 112, "crop": 96}


def usual(resize: int, crop: int) -> Feed:
    transforms = torchvision.transforms
    steps = transforms.Compose(
        [
            transforms.Resize(resize),
            transforms.CenterCrop(crop),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return lambda file: steps(open_picture(file))[None]


def of_torchvision(
    arch: str, save: Callable[..., None], end: Any, read: Callable[[Array], Array], folder: Path
) -> Truth:
    feed = usual(**SIZES)
    known = {"aux_logits": False} if arch in ("googlenet", "inception_v3") else {}
    module = torchvision.models.get_model(arch, weights=None, num_classes=CLASSES, **known)
    sharpen_scores(module, feed)
    whole = torch.nn.Sequential(module, end).eval() if end else module
    example = feed(pictures(1)[0])
    example = example if isinstance(save, partial) else torch.cat([example, example])
    save(whole, example, folder / "model.onnx")
    return right(whole, feed, read)


def in_eight_bits(arch: str, kind: str, folder: Path) -> Truth:
    """What is right is what ONNX Runtime says of the file."""
    path, feed = folder / "model.onnx", usual(**SIZES)
    of_torchvision(arch, by_tracing, None, softmax, folder)
    by_onnxruntime(onnx.load(path), path, kind, lambda file: feed(file).numpy())
    return graphs.right(folder, lambda file: feed(file).numpy(), softmax)


def torchvisions() -> Iterator[Case]:
    how = {"PICTURES": "resize: 112"}
    traced, exported = (partial(save, fixed=True) for save in (by_tracing, by_dynamo))
    ends: dict[str, tuple[Any, Callable[[Array], Array]]] = {
        "": (None, softmax),
        ", a softmax": (torch.nn.Softmax(1), same),
        ", a sigmoid": (torch.nn.Sigmoid(), same),
    }
    for arch, way, save, end in (
        ("mobilenet_v2", "dynamo", by_dynamo, ""),
        ("mobilenet_v2", "dynamo", by_dynamo, ", a softmax"),
        ("mobilenet_v2", "tracing", by_tracing, ", a softmax"),
        ("resnet18", "tracing", by_tracing, ""),
        ("resnet18", "dynamo", by_dynamo, ", a sigmoid"),
        ("shufflenet_v2_x0_5", "tracing, batch fixed", traced, ""),
        ("mobilenet_v3_small", "dynamo, batch fixed", exported, ""),
        ("regnet_x_400mf", "tracing", by_tracing, ""),
        ("regnet_y_400mf", "dynamo", by_dynamo, ""),
        ("squeezenet1_1", "dynamo", by_dynamo, ""),
        ("mnasnet0_5", "tracing", by_tracing, ", a softmax"),
        ("googlenet", "dynamo", by_dynamo, ""),
    ):
        module, read = ends[end]
        make = partial(of_torchvision, arch, save, module, read)
        yield Case(f"{arch}{end} ({way})", "torchvision", quietly(make), how)
    files: tuple[tuple[str, Callable[..., None], str], ...] = (
        ("TorchScript", as_torchscript, "model.pt"),
        ("torch.export", as_program, "model.pt2"),
    )
    for name, save, file in files:
        options = how | {"FROM": f"{{folder}}/{file}", "SIZE": "96"}
        options |= {"TRUST": "1"} if file == "model.pt2" else {}
        make = partial(of_torchvision, "mobilenet_v3_small", save, None, softmax)
        yield Case(f"mobilenet_v3_small ({name})", "torchvision", quietly(make), options)
    for kind in ("u8s8", "s8s8"):
        made = quietly(partial(in_eight_bits, "shufflenet_v2_x0_5", kind))
        name = f"shufflenet_v2_x0_5 (ONNX Runtime's {kind})"
        yield Case(name, "torchvision", made, how, bound=EIGHT_BITS)
    yield Case(
        "a state dict in a .pt file", "torchvision", quietly(_state), {"FROM": "{folder}/model.pt"},
        "has weights, and no network",
    )  # fmt: skip
    yield Case(
        "a pickled network", "torchvision", quietly(_save_pickled), {"FROM": "{folder}/model.pt"},
        "needs the code",
    )  # fmt: skip


def _state(folder: Path) -> Truth:
    torch.save(torchvision.models.squeezenet1_1(weights=None).state_dict(), folder / "model.pt")
    return _never


def _save_pickled(folder: Path) -> Truth:
    torch.save(torchvision.models.squeezenet1_1(weights=None), folder / "model.pt")
    return _never


def _never(file: bytes) -> Array:
    raise AssertionError("it is refused")


# timm's


def of_timm(name: str, save: Callable[..., None] | None, folder: Path) -> Truth:
    """Its own transforms; `save` is None where it is taken in by its name."""
    module = timm.create_model(name, pretrained=False)
    config = timm.data.resolve_model_data_config(module, use_test_size=True)
    transform = timm.data.create_transform(**config)
    feed: Feed = lambda file: transform(open_picture(file))[None]  # noqa: E731
    sharpen_scores(module, feed)
    example = feed(pictures(1)[0])
    if save is None:
        torch.save(module.state_dict(), folder / "weights.pth")
    else:
        example = example if isinstance(save, partial) else torch.cat([example, example])
        save(module, example, folder / "model.onnx")
        keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
        about = {"architecture": name, "pretrained_cfg": {key: config[key] for key in keys}}
        (folder / "config.json").write_text(json.dumps(about))
    return right(module, feed, softmax)


def timms() -> Iterator[Case]:
    options = {"WEIGHTS": "{folder}/weights.pth"}
    for name in (
        *("test_vit", "test_resnet", "test_efficientnet", "test_convnext", "test_byobnet"),
        *("test_nfnet", "test_maxvit", "test_mambaout", "test_coatnet", "test_vit_relpos"),
        *("mobilenetv3_small_050", "lcnet_035", "resnet10t", "edgenext_xx_small", "ghostnet_100"),
    ):
        words = options | {"FROM": f"timm/{name}"}
        yield Case(name, "timm, by name", quietly(partial(of_timm, name, None)), words)
    for name, way, save in (
        ("test_vit2", "dynamo", by_dynamo),
        ("test_vit3", "tracing, batch fixed", partial(by_tracing, fixed=True)),
        ("test_efficientnet_gn", "dynamo, batch fixed", partial(by_dynamo, fixed=True)),
        ("test_convnext2", "tracing", by_tracing),
        ("test_resnet", "tracing", by_tracing),
    ):
        make = quietly(partial(of_timm, name, save))
        yield Case(f"{name} ({way}), with its config.json", "timm", make)
    yield Case(
        "a name that timm has not", "timm, by name", lambda folder: _never,
        {"FROM": "timm/nonet50"}, "timm has no network nonet50",
    )  # fmt: skip


# Hugging Face's

ATTENTION = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL: dict[str, dict[str, Any]] = {
    "vit": ATTENTION,
    "swin": {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4], "window_size": 7},
    "convnext": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1],
               "layer_type": "basic"},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.35},
    "mobilevit": {"image_size": 256},
    "poolformer": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1]},
    "levit": {"hidden_sizes": [64, 96, 128], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1]},
    "pvt": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 4, 8]},
    "regnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "deit": ATTENTION,
    "beit": ATTENTION,
    "bit": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "num_groups": 8},
    "dinov2": ATTENTION,
    "efficientnet": {"width_coefficient": 0.3, "depth_coefficient": 0.3, "hidden_dim": 384},
}  # fmt: skip
# The processors that their publishers pair them with.
PROCESSORS = {
    "vit": "ViTImageProcessor", "swin": "ViTImageProcessor", "convnext": "ConvNextImageProcessor",
    "resnet": "ConvNextImageProcessor", "mobilenet_v1": "MobileNetV1ImageProcessor",
    "mobilenet_v2": "MobileNetV2ImageProcessor", "mobilevit": "MobileViTImageProcessor",
    "poolformer": "PoolFormerImageProcessor", "levit": "LevitImageProcessor",
    "pvt": "PvtImageProcessor", "regnet": "ConvNextImageProcessor", "deit": "DeiTImageProcessor",
    "beit": "BeitImageProcessor", "bit": "BitImageProcessor", "dinov2": "BitImageProcessor",
    "efficientnet": "EfficientNetImageProcessor",
}  # fmt: skip

# Where they publish other sizes than their processor's own.
PUBLISHED = {"mobilevit": {"size": {"shortest_edge": 288}, "crop_size": 256}}


def of_hugging_face(kind: str, several: bool, exported: bool, folder: Path) -> Truth:
    processor = getattr(transformers, PROCESSORS[kind])(**PUBLISHED.get(kind, {}))
    labels = {number: f"{kind} {number}" for number in range(CLASSES)}
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind], id2label=labels)
    config.architectures = []
    config.problem_type = "multi_label_classification" if several else None
    network = transformers.AutoModelForImageClassification.from_config(config).eval()

    class Logits(torch.nn.Module):  # type: ignore[misc]  # torch comes without types here
        def __init__(self) -> None:
            super().__init__()
            self.inside = network

        def forward(self, image: Any) -> Any:
            return self.inside(pixel_values=image).logits

    module = Logits()

    processor.save_pretrained(folder)
    # What resizes as the server does: random weights make much of a level.
    exact = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")

    def feed(file: bytes) -> Any:
        return exact(images=open_picture(file), return_tensors="pt")["pixel_values"]

    sharpen_scores(module, feed)
    network.save_pretrained(folder)
    if exported:
        example = feed(pictures(1)[0])
        by_tracing(module, torch.cat([example, example]), folder / "model.onnx")
    return right(module, feed, sigmoid if several else softmax)


def hugging_faces() -> Iterator[Case]:
    options = {"FROM": "{folder}"}
    for kind in SMALL:
        make = quietly(partial(of_hugging_face, kind, False, False))
        yield Case(kind, "Hugging Face, a folder", make, options)
    make = quietly(partial(of_hugging_face, "vit", True, False))
    yield Case("vit, multi-label", "Hugging Face, a folder", make, options)
    make = quietly(partial(of_hugging_face, "resnet", False, True))
    yield Case("resnet, exported to ONNX in it", "Hugging Face, a folder", make, options)


# Others


def of_scikit(folder: Path) -> Truth:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    rows, kinds = random.standard_normal((60, 64)).astype(np.float32), random.integers(0, 3, 60)
    network = to_onnx(LogisticRegression().fit(rows, kinds), rows[:1])
    (folder / "model.onnx").write_bytes(network.SerializeToString())
    return _never


def of_mlflow(flavour: str, folder: Path) -> Truth:
    """As mlflow.onnx.log_model and mlflow.pytorch.log_model leave them."""
    feed = usual(**SIZES)
    module = torchvision.models.get_model("mobilenet_v3_small", weights=None, num_classes=CLASSES)
    sharpen_scores(module, feed)
    example = feed(pictures(1)[0])
    if flavour == "onnx":
        by_tracing(module, torch.cat([example, example]), folder / "model.onnx")
        entry = "onnx: {data: model.onnx, onnx_version: 1.23.2}"
    else:
        (folder / "data").mkdir()
        torch.jit.trace(module, example).save(folder / "data" / "model.pth")
        entry = "pytorch: {model_data: data, pytorch_version: 2.13.0}"
    text = (
        f"artifact_path: model\nflavors:\n  {entry}\n  python_function: {{loader_module: mlflow}}\n"
    )
    (folder / "MLmodel").write_text(text)
    return right(module, feed, softmax)


def others() -> Iterator[Case]:
    why = "not float [batch, classes]"
    yield Case("logistic regression", "scikit-learn", of_scikit, {}, why)
    for flavour in ("onnx", "pytorch"):
        options = {"FROM": "{folder}", "SIZE": "96", "PICTURES": "resize: 112"}
        make = quietly(partial(of_mlflow, flavour))
        yield Case(f"a folder with flavour {flavour}", "MLflow", make, options)


CASES = (*torchvisions(), *timms(), *hugging_faces(), *others())
