"""Recipes are read strictly and agree with their configs; what is copied is as the original."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.base import files
from scripts.base.errors import UserError
from scripts.intake.signature import signature
from scripts.recipes import configs
from scripts.recipes.folders import model_folder, model_folders, recipe_files
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU, GPU, Engine
from scripts.recipes.recipe import Recipe
from scripts.recipes.schema import load
from scripts.repository import model_folders as laying
from scripts.repository.own_pipelines import write_models
from scripts.settings.settings import DEFAULTS
from tests.project import ROOT

FILES = {path.stem: path for path in recipe_files()}
RECIPE = FILES["resnet50"]
# Of pipelines that the project has none of.
TEMPLATES = sorted((ROOT / "kinds").glob("*/template"))
HOMES = [ROOT / "model_repository", *(ROOT / "kinds").glob("*/model_repository"), *TEMPLATES]


def configs_of(recipe: Recipe) -> list[Path]:
    models = recipe.model_names.values()
    return [path for model in models for path in sorted(model_folder(model).rglob("*.pbtxt"))]


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_and_its_configs_agree(name: str) -> None:
    """What the recipe says too, it would set as it is."""
    recipe = load(FILES[name])
    assert len(configs_of(recipe)) >= len(recipe.model_names) > 1
    for path in configs_of(recipe):
        as_it_is, adapted = configs.read(path), configs.read(path)
        recipe.adapt(adapted)
        assert adapted == as_it_is, path


def test_every_model_of_the_repository_is_of_one_recipe() -> None:
    models = [model for path in FILES.values() for model in load(path).model_names.values()]
    assert sorted(models) == sorted(model_folders())


def test_every_config_is_one_and_names_its_model() -> None:
    """In Triton's own grammar."""
    for home in HOMES:
        for path in home.rglob("*.pbtxt"):
            assert configs.read(path).name == path.relative_to(home).parts[0]


def test_every_config_lets_a_rollout_serve_two_versions() -> None:
    for home in HOMES:
        for path in home.rglob("*.pbtxt"):
            assert has_every_version(path.read_text())
    for wanted in (
        "",
        "version_policy: {\n latest { num_versions: 1}}",
        "version_policy { all {} }",
    ):
        assert has_every_version(f'name: "mine"\n{wanted}')
    assert not has_every_version("version_policy { specific { versions: 3 } }")


def has_every_version(config: str) -> bool:
    served = text_format.Parse(laying.serving_all(config.encode()), ModelConfig())
    return bool(served.version_policy.WhichOneof("policy_choice") == "all")


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_of_the_users_gets_copies_with_its_names(name: str, tmp_path: Path) -> None:
    recipe = load(FILES[name])
    names = {model: f"my_{model}" for model in recipe.model_names.values()}
    mine = {key: f"my_{model}" for key, model in recipe.models if is_its_own(model, recipe)}
    own = recipe.model_copy(update={"models": recipe.models.model_copy(update=mine)})
    write_models(own, tmp_path)
    assert {*names.values()} == {*own.model_names.values()}
    for model, copy in names.items():
        there = files_of(model_folder(model))
        assert files_of(tmp_path / copy).keys() == there.keys()
        for file, path in files_of(tmp_path / copy).items():
            if path.suffix == ".pbtxt":
                assert configs.read(path) == config_under(names, configs.read(there[file])), path
            else:
                assert path.read_bytes() == there[file].read_bytes()


def is_its_own(model: str, recipe: Recipe) -> bool:
    borrowed = recipe.list_borrowed(CPU)
    return not {model, f"{model}_{CPU.ending}"} & {*borrowed}


def files_of(folder: Path) -> dict[str, Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path for path in files if path.suffix != ".pyc"}


def config_under(names: Mapping[str, str], config: ModelConfig) -> ModelConfig:
    config.name = names[config.name]
    for step in config.ensemble_scheduling.step:
        step.model_name = names.get(step.model_name, step.model_name)
    for key in {"first", "steps"} & config.parameters.keys():
        words = config.parameters[key].string_value.split(",")
        config.parameters[key].string_value = ",".join(names[each] for each in words)
    return config


def test_a_kind_without_an_example_wants_its_models_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "example", "none.yaml")
    with pytest.raises(UserError, match="ensemble_python_resnet50 has no model folders"):
        write_models(load(RECIPE), tmp_path)


# As recipes of earlier releases have them, and as a user may still write them.
KEYS = {
    "classes": 17,
    "answers": "multi-label",
    "pictures__crop": [192, 160],
    "batch": {"max": 12, "optimal": 4, "preferred": [3, 6], "max_delay_us": 70},
    "instances": {"preprocessing": 3, "network": 5, "network_on_gpu": 7},
    "warmup": "mug.jpg",
}


def test_keys_of_a_recipe_edit_the_copies(tmp_path: Path) -> None:
    recipe = of_pictures(changed(tmp_path / "mine.yaml", **KEYS))
    write_models(recipe, tmp_path)
    names = recipe.model_names.values()
    at = {name: configs.read(tmp_path / name / "config.pbtxt") for name in names}
    assert {each.max_batch_size for each in at.values()} == {12} == {recipe.most}
    on_cpu, on_gpu = at["resnet50_onnx"], at["resnet50_trt"]
    for each, count in ((at["preprocessing"], 3), (on_cpu, 5), (on_gpu, 7)):
        assert each.instance_group[0].count == count
    for each in (on_cpu, on_gpu):
        assert list(each.input[0].dims) == [3, 192, 160] and list(each.output[0].dims) == [17]
        assert list(each.model_warmup[0].inputs["input"].dims) == [3, 192, 160]
    assert list(on_cpu.dynamic_batching.preferred_batch_size) == [12]
    assert list(on_gpu.dynamic_batching.preferred_batch_size) == [3, 6]
    assert on_gpu.dynamic_batching.max_queue_delay_microseconds == 70
    assert at["postprocessing"].parameters["answers"].string_value == "multi-label"
    assert list(at[PIPELINE].output[0].dims) == [17] == [recipe.class_count]


@pytest.mark.parametrize(
    ("engine", "kind", "count", "policy", "dropped"),
    [
        (CPU, "KIND_CPU", 2, "priority_levels: 2", True),
        (CPU, "KIND_CPU", 2, "default_queue_policy { max_queue_size: 7 }", True),
        (CPU, "KIND_CPU", 2, "", False),  # then Triton hands out ahead
        (CPU, "KIND_AUTO", 1, "priority_levels: 2", False),
        (GPU, "KIND_CPU", 1, "priority_levels: 2", False),
        (GPU, "KIND_AUTO", 1, "priority_levels: 2", True),  # there may be several
    ],
)
def test_instances_that_would_starve_wait_for_no_more_requests(
    engine: Engine, kind: str, count: int, policy: str, dropped: bool
) -> None:
    group = f"instance_group {{ kind: {kind} count: {count} }}"
    batching = f"dynamic_batching {{ max_queue_delay_microseconds: 500 {policy} }}"
    member = text_format.Parse(group + batching, ModelConfig())
    assert configs.drop_delay(member, engine) == dropped
    assert member.dynamic_batching.max_queue_delay_microseconds == (0 if dropped else 500)


@pytest.mark.parametrize(
    ("engine", "kind", "count", "dropped"),
    [
        (CPU, "KIND_CPU", 1, True),
        (CPU, "KIND_AUTO", 1, True),
        (CPU, "KIND_CPU", 2, False),
        (GPU, "KIND_CPU", 1, True),
        (GPU, "KIND_GPU", 1, False),
    ],
)
def test_one_process_has_a_queue_that_it_cannot_miss(
    engine: Engine, kind: str, count: int, dropped: bool
) -> None:
    text = f"""
    instance_group {{ kind: {kind} count: {count} }}
    dynamic_batching {{
      preferred_batch_size: 4 priority_levels: 2 default_priority_level: 1
      default_queue_policy {{ max_queue_size: 7 }}
      priority_queue_policy {{ key: 2 value {{ max_queue_size: 7 }} }}
    }}
    """
    member = text_format.Parse(text, ModelConfig())
    assert configs.drop_queue(member, engine) == dropped
    assert member.dynamic_batching.priority_levels == (0 if dropped else 2)
    assert ("queue" in str(member)) != dropped
    assert list(member.dynamic_batching.preferred_batch_size) == [4]


def of_pictures(path: Path) -> Image:
    recipe = load(path)
    assert isinstance(recipe, Image)
    return recipe


def test_the_recipe_says_what_the_settings_say() -> None:
    recipe = of_pictures(RECIPE)
    assert recipe.models.ensemble == PIPELINE
    values = {"ARCH": recipe.source.removeprefix("torchvision/"), "WEIGHTS": recipe.weights}
    values |= {"PRECISION": recipe.precision, "OPT_BATCH": str(recipe.batch.optimal)}
    assert values == {name: DEFAULTS[name] for name in values}


def changed(path: Path, **changes: Any) -> Path:
    """The recipe with other values; a dot in a key leads into a part, None takes the key out."""
    content = yaml.safe_load(RECIPE.read_text())
    for key, value in changes.items():
        *parts, last = key.split("__")
        where = content
        for part in parts:
            where = where[part]
        where.pop(last, None)
        if value is not None:
            where[last] = value
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("changes", "cause", "remedy"),
    [
        ({"colour": "red"}, "unknown key colour", "kind, models, setting, triton"),
        ({"pictures__size": 3}, "unknown key pictures.size", "resize, crop, fit, pad"),
        ({"source": None}, "source is missing", "resnet50.yaml shows it"),
        ({"kind": "smell"}, "kind 'smell' is not known", "image"),
        ({"pictures__crop": "wide"}, "pictures.crop: 'wide'", "integer"),
        ({"pictures__interpolation": "cubic"}, "interpolation: 'cubic'", "'bilinear', 'bicubic'"),
        ({"pictures__mean": [1, 2]}, "pictures: ", "mean and std of rgb have 3 each"),
        ({"pictures__resize": 200}, "pictures: ", "at least as large as crop"),
        ({"batch__max": 0}, "batch.max: 0", "greater than or equal to 1"),
        ({"models__network": "../x"}, "models.network: '../x'", "pattern"),
        (
            {"warmup": "nobody.jpg"},
            "there is no preprocessing/warmup/nobody.jpg",
            "put the recipe's",
        ),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], cause: str, remedy: str
) -> None:
    path = changed(tmp_path / "odd.yaml", **changes)
    with pytest.raises(UserError) as refused:
        write_models(load(path), tmp_path / "out")
    error = refused.value
    assert cause in error.cause and remedy in f"{error.cause}; {error.remedy}"
    assert "\n" not in f"{error.cause}{error.remedy}"


def test_a_kind_of_an_earlier_release_is_told_what_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "recipes" / "earlier.yaml"
    files.write(path, "kind: earlier\nmodels: {ensemble: earlier}\n")
    program = """from scripts.recipes.recipe import Recipe

class Earlier(Recipe):
    def borrowed(self, engine): return []
"""
    files.write(tmp_path / "kinds" / "earlier.py", program)
    with pytest.raises(UserError, match="kind earlier defines borrowed") as refused:
        load(path)
    assert refused.value.remedy.startswith("call it list_borrowed in ")


def test_what_is_no_recipe_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "none.yaml")
    for content, message in (
        ("a: [", "is not valid YAML"),
        ("- 1", "is not a recipe"),
        ("", "is not a recipe"),
    ):
        (tmp_path / "odd.yaml").write_text(content)
        with pytest.raises(UserError, match=message):
            load(tmp_path / "odd.yaml")


def test_a_network_that_takes_no_pixels_is_refused(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    def tensor(name: str, *dims: int | str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    path = tmp_path / "odd.onnx"
    for given, message in (
        (("n", 10), "float .dynamic, 10., not pictures .batch, 3, height, width."),
        ((1, 4, 8, 8), "float .1, 4, 8, 8.: neither colour .3 channels. nor grey .1."),
        (("n", 3, "h", "w"), "any height and width"),
    ):
        node = helper.make_node("Identity", ["in"], ["out"])
        graph = helper.make_graph([node], "odd", [tensor("in", *given)], [tensor("out", "n", 2)])
        save(helper.make_model(graph), path)
        with pytest.raises(UserError, match=message):
            signature(path)
    path.write_text("no network")
    with pytest.raises(UserError, match="cannot be read as ONNX"):
        signature(path)
    with pytest.raises(UserError, match="no network at"):
        signature(tmp_path / "none.onnx")
