"""The documents name what there is, and the configurations fit together."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelDynamicBatching, ModelInput

import bundle_client
from scripts.base import layers
from scripts.recipes import pipelines
from scripts.recipes.folders import model_folder, model_folders
from scripts.recipes.layout import CPU, GPU, Engine
from scripts.settings.settings import DEFAULTS
from tests.project import ROOT, find_brought, makefiles

README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
STATED_VERSION = re.compile(r"(?:image\.version|VERSION): (?:&version )?([\d.]+)$", re.MULTILINE)
COMPOSE = "".join(path.read_text() for path in sorted(ROOT.glob("compose*.yaml")))
MAKEFILES = "".join(path.read_text() for path in makefiles())
TARGETS = re.findall(r"^([a-z0-9-]+):.*##[+]? ", MAKEFILES, re.MULTILINE)


def test_images_carry_the_version() -> None:
    assert STATED_VERSION.findall(COMPOSE) == [bundle_client.__version__] * 3


def config(path: Path) -> ModelConfig:
    return text_format.Parse(path.read_text(), ModelConfig())


# Their versions are.
MADE_HERE = (
    "resnet50_onnx",
    "resnet50_trt",
    "sentiment_onnx",
    "sentiment_trt",
    "classification_places",
    "mobilenet_v2_onnx",
    "mobilenet_v2_trt",
    "detector_onnx",
    "detector_trt",
    "listener_onnx",
    "listener_trt",
    "segmenter_onnx",
    "segmenter_trt",
)
NAMES = [name for name in MADE_HERE if name in model_folders()]
CLASSIFIERS = [name for name in NAMES if name.startswith(("resnet", "class", "mobile"))]
NOT_WARMED = (
    "cascade_choice",  # it asks others, which are warm
    "video_smoothing",  # nothing in it is slow at first
)
CONFIGS = [folder / "config.pbtxt" for folder in model_folders().values()]
VARIANTS = [path for each in CONFIGS for path in sorted(each.parent.glob("configs/*.pbtxt"))]
MEMBERS = [path for path in CONFIGS if config(path).platform != "ensemble"]
ENSEMBLES = [path for path in CONFIGS if path not in MEMBERS]
# Beyond this many a request is refused at once; after this long its client has given up. Those of
# the second level wait for all of the first, which is the one of requests that name none.
QUEUES = """
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy { max_queue_size: 512 default_timeout_microseconds: 30000000 }
  priority_queue_policy {
    key: 2 value { max_queue_size: 128 default_timeout_microseconds: 30000000 }
  }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_every_command_is_in_the_documents(target: str) -> None:
    assert f"| `make {target}" in COMMANDS


def test_the_readme_shows_the_commands_that_help_shows() -> None:
    shown = re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILES, re.MULTILINE)
    in_readme = re.findall(r"^\| `make ([a-z0-9-]+)", README, re.MULTILINE)
    assert {*in_readme} | {"check", "test"} == {*shown} and len(in_readme) <= 21


def test_compose_and_settings_agree_on_defaults() -> None:
    defaults = re.findall(r"\$\{([A-Z0-9_]+):-([^}]*)\}", COMPOSE)
    assert len(defaults) > 3
    for name, default in defaults:
        if DEFAULTS.get(name):
            assert default == DEFAULTS[name], name


def test_another_setting_of_a_step_is_another_server() -> None:
    """Newer Composes do not replace the server where only a step before it has changed."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    steps = [services[name] for name in ("export", "engine", "layout")]
    read = {each.split("=")[0] for step in steps for each in step["environment"]} - {"<<"}
    read |= {*re.findall(r"\$\{(\w+)", " ".join(map(str, (step["command"] for step in steps))))}
    server = services["server"]
    given = {*re.findall(r"\$\{(\w+)", server["labels"]["triton-bundle.fingerprint"])}
    of_steps = {"FLAVOUR", "TORCH_HOME", "SSL_CERT_FILE", "PYTHONPATH"}
    assert len(read) > 15 and not read - of_steps - given - {*server["environment"]}


def test_what_runs_on_has_a_bounded_log() -> None:
    """By a driver that knows such bounds: others refuse the container."""
    for file in ("compose.yaml", "compose.extra.yaml"):
        for name, service in yaml.safe_load((ROOT / file).read_text())["services"].items():
            if "restart" in service:
                logging = service["logging"]
                assert logging["driver"] == "json-file" and "max-size" in logging["options"], name


def test_links_in_the_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *find_brought("*/*.md")]
    links = [
        (document, *link)
        for document in documents
        for link in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text())
    ]
    assert len(documents) > 10 and len(links) > 20
    for document, name, anchor in links:
        target = document.parent / name if name else document
        if is_taken_out(target):
            continue
        assert target.exists(), f"{document.name}: {name}"
        assert not anchor or anchor in anchors(target), f"{document.name}: {name}#{anchor}"


def is_taken_out(target: Path) -> bool:
    """Whether it is of a kind of pipeline or an extension that is not there."""
    home, name, *_ = *target.resolve().relative_to(ROOT).parts, "", ""
    return home in ("kinds", "extensions") and not (ROOT / home / name).is_dir()


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name_of(path: Path) -> str:
    return path.parent.name


@pytest.mark.parametrize("path", MEMBERS + ENSEMBLES, ids=name_of)
def test_every_config_says_whose_it_is(path: Path) -> None:
    folder = path.parent.name
    parsed = config(path)
    assert parsed.name == folder
    assert parsed.version_policy.latest.num_versions == 1
    versions = [child for child in path.parent.iterdir() if child.name.isdecimal()]
    assert versions or folder in MADE_HERE


@pytest.mark.parametrize("engine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("path", ENSEMBLES, ids=name_of)
def test_every_step_of_the_ensemble_fits_the_next(path: Path, engine: Engine) -> None:
    ensemble = config(path)
    (recipe,) = (each.recipe for each in pipelines.every() if each.ensemble == path.parent.name)
    assert recipe.set_engine(ensemble, engine) == (
        engine is CPU and path.parent.name != "places_ensemble"
    )
    known = {tensor.name: tensor for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        member = config(model_folder(step.model_name) / "config.pbtxt")
        assert member.max_batch_size >= ensemble.max_batch_size
        inputs = {tensor.name: tensor for tensor in member.input}
        outputs = {tensor.name: tensor for tensor in member.output}
        assert inputs.keys() == step.input_map.keys()
        for name, source in step.input_map.items():
            assert inputs[name].data_type == known[source].data_type
            assert alike(inputs[name].dims, known[source].dims)
        for name, target in step.output_map.items():
            known[target] = outputs[name]
    for tensor in ensemble.output:
        assert known[tensor.name].data_type == tensor.data_type
        assert list(known[tensor.name].dims) == list(tensor.dims)


@pytest.mark.parametrize("path", MEMBERS + VARIANTS, ids=name_of)
def test_queues_end(path: Path) -> None:
    parsed = config(path)
    batching = parsed.dynamic_batching
    if not parsed.HasField("dynamic_batching"):
        assert parsed.HasField("sequence_batching") or parsed.platform == "ensemble"
        return
    assert all(1 < each <= parsed.max_batch_size for each in batching.preferred_batch_size)
    batching.ClearField("preferred_batch_size")
    # Nor does one wait for more: with several GPUs, Triton up to 2.71 starves (server 8870).
    assert batching == text_format.Parse(QUEUES, ModelDynamicBatching())


def alike(taken: Sequence[int], given: Sequence[int]) -> bool:
    """-1 takes any size."""
    return all(most in (-1, size) for most, size in zip(taken, given, strict=True))


@pytest.mark.parametrize("path", MEMBERS, ids=name_of)
def test_members_are_warmed_up(path: Path) -> None:
    """Triton refuses a warmup on the ensemble; each member has its own."""
    assert bool(config(path).model_warmup) != (path.parent.name in NOT_WARMED)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_networks_of_pictures_tell_upstreams_image_clients_enough(model: str) -> None:
    """image_client.py goes by where the channels are, and by the names of the classes."""
    for path in model_folder(model).rglob("*.pbtxt"):
        network = config(path)
        assert network.input[0].format == ModelInput.FORMAT_NCHW, path
        assert network.output[0].label_filename == "labels.txt", path


def test_warmup_files_are_as_long_as_their_configs_say() -> None:
    checked = 0
    for path in MEMBERS:
        for tensor in (each for w in config(path).model_warmup for each in w.inputs.values()):
            if tensor.input_data_file.endswith((".jpg", ".wav")):
                file = path.parent / "warmup" / tensor.input_data_file
                assert list(tensor.dims) == [file.stat().st_size], path
                checked += 1
    assert checked


def test_pins_are_exact_and_used() -> None:
    pins = layers.CONSTRAINTS.read_text()
    assert all("==" in line for line in pins.splitlines() if line and not line.startswith("#"))
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)}
    for path in layers.list_files():
        for line in path.read_text().splitlines():
            if name := re.match(r"([\w.-]+)", line):
                assert name[1].lower() in pinned or line.startswith("-r"), name[1]


def test_the_readme_can_be_read_at_once() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
