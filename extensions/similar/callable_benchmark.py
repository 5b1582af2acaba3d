"""What a plain Python callable costs: the same network, behind the same decoding, as models of the
repository and as the callable of `make similar`. Two servers, one run, in turns.

    .venv/bin/python -m extensions.similar.callable_benchmark [--seconds 10]

Before it: make similar IMG=… IN=…
"""

import json
import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from benchmark.load import Question, infer_path, measure, over_http
from bundle_serving.health import reason_not_to_trust
from bundle_serving.pictures import Transform
from extensions.similar.service import MADE, MODEL
from extensions.similar.serving.embeddings import Network
from scripts.artefacts.exporting import start
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON
from scripts.base.ports import free_ports
from scripts.measuring import photos
from scripts.recipes import configs
from scripts.recipes.folders import MODELS
from scripts.recipes.layout import CPU, Share
from scripts.repository import model_folders
from scripts.stacks.temporary import running, triton

AT_ONCE = 8
ROUNDS = 3
REPOSITORY, CALLABLE = "models of the repository", "callable"
ENSEMBLE, NETWORK = "embedding_ensemble", "embedding_onnx"


def main(seconds: float = 10) -> None:
    """Of each measurement."""
    if not (MADE / "model.onnx").exists():
        raise UserError("no network is exported", "make similar IMG=photo.jpg IN=photos")
    network = Network.load(MADE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        paths = {
            REPOSITORY: stack.enter_context(as_models(network, folder)),
            CALLABLE: stack.enter_context(as_callable(folder)),
        }
        for sent in photos.read_or_draw(""):
            print(sent.description)
            compare(paths, sent.rows, seconds)


def compare(paths: dict[str, tuple[str, str]], rows: tuple[bytes, ...], seconds: float) -> None:
    rates: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(ROUNDS):
        for name, (address, model) in paths.items():
            question = Question(name, over_http(address, infer_path(model)), rows)
            round_ = measure(question, AT_ONCE, seconds)
            rates[name].append(round_.images_per_second)
            print(
                f"  {name:<25} {rates[name][-1]:7.1f} pictures/s, p50 {round_.p50 * 1e3:.0f} ms",
                flush=True,
            )
    by_models, by_callable = (statistics.median(each) for each in rates.values())
    print(f"  the callable has {by_callable / by_models:.2f} of the models' throughput")


@contextmanager
def as_callable(folder: Path) -> Iterator[tuple[str, str]]:
    (port,) = free_ports(1)
    command: list[str | Path] = [PYTHON, "-m", "bundle_serving.embedding_service"]
    command += ["--made", MADE, "--run-dir", folder / "run", "--port", str(port)]
    address = f"127.0.0.1:{port}"
    with running(
        "the callable",
        command,
        folder / "callable.log",
        lambda: reason_not_to_trust(f"http://{address}", MODEL),
    ):
        yield address, MODEL


@contextmanager
def as_models(network: Network, folder: Path) -> Iterator[tuple[str, str]]:
    lay_out(network, folder / "models")
    with triton("the server", folder / "models", folder / "models.log", ENSEMBLE) as (address, _):
        yield address, ENSEMBLE


def lay_out(network: Network, models: Path) -> None:
    """The first two steps of the pipeline of pictures, with this network, and nothing after it."""
    share = Share.of_cores(len(os.sched_getaffinity(0)))
    crop = network.transform["crop"]

    decoding = configs.read_model("preprocessing")
    decoding.output[0].dims[:] = [3, crop, crop]
    model_folders.furnish_with(["preprocessing"], models)
    program = Path("preprocessing", "1", "model.py")
    files.write(models / program, (MODELS / program).read_text())
    how = Transform(**network.transform)
    files.write(models / "preprocessing" / "1" / "transform.json", how.dump())

    running_it = configs.read_model("resnet50_onnx")
    running_it.name = NETWORK
    running_it.input[0].dims[:] = [3, crop, crop]
    running_it.output[0].name = "embedding"
    running_it.output[0].dims[:] = [network.dimensions]
    files.place(network.file, models / NETWORK / "1" / CPU.file)
    files.write(models / NETWORK / "1" / "engine.json", json.dumps({"precision": "fp32"}))

    for member in (decoding, running_it):
        configs.set_share(member, share)
    for model in (decoding, running_it, ensemble(network, running_it.max_batch_size)):
        files.write(models / model.name / "config.pbtxt", text_format.MessageToString(model))
    files.write(models / ENSEMBLE / "1" / ".gitkeep", "")


def ensemble(network: Network, max_batch_size: int) -> ModelConfig:
    text = f"""
        name: "{ENSEMBLE}" platform: "ensemble" max_batch_size: {max_batch_size}
        input {{ name: "INPUT" data_type: TYPE_UINT8 dims: -1 }}
        output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: {network.dimensions} }}
        ensemble_scheduling {{
          step {{
            model_name: "preprocessing" model_version: -1
            input_map {{ key: "INPUT_0" value: "INPUT" }}
            output_map {{ key: "OUTPUT_0" value: "pixels" }}
          }}
          step {{
            model_name: "{NETWORK}" model_version: -1
            input_map {{ key: "input" value: "pixels" }}
            output_map {{ key: "embedding" value: "OUTPUT" }}
          }}
        }}"""
    return text_format.Parse(text, ModelConfig())


if __name__ == "__main__":
    start(main)
