"""A recipe's switches, in Triton's own grammar."""

from typing import Any

import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.recipe import Recipe
from scripts.recipes.schema import load
from tests.project import ROOT

NETWORK = "resnet50_onnx"


def recipe(**switched: Any) -> Recipe:
    return load(ROOT / "model_repository" / "resnet50.yaml").model_copy(update={"triton": switched})


def require(recipe: Recipe) -> None:
    configs.require_switches(recipe.triton, recipe.ensemble, recipe.members)


def switched(wanted: dict[str, Any]) -> tuple[ModelConfig, ModelConfig]:
    """Before and after."""
    before = configs.read_model(NETWORK)
    after = ModelConfig()
    after.CopyFrom(before)
    assert configs.set_switches(after, recipe(**{NETWORK: wanted}).triton)
    return before, after


def test_a_part_is_set_beside_the_others_and_a_list_in_place_of_the_old_one() -> None:
    before, after = switched(
        {
            "dynamic_batching": {"preserve_ordering": True, "default_priority_level": 2},
            "instance_group": [{"kind": "KIND_AUTO", "count": 3}],
            "parameters": {"mine": {"string_value": "1"}},
        }
    )
    assert after.dynamic_batching.preserve_ordering
    assert after.dynamic_batching.default_priority_level == 2
    assert (
        after.dynamic_batching.default_queue_policy == before.dynamic_batching.default_queue_policy
    )
    (group,) = after.instance_group
    assert (group.count, group.kind) == (3, ModelInstanceGroup.KIND_AUTO)
    assert {*after.parameters} == {*before.parameters, "mine"}
    assert after.model_warmup == before.model_warmup


def test_nothing_is_set_that_no_recipe_names() -> None:
    assert not configs.set_switches(ModelConfig(name=NETWORK), recipe().triton)
    assert not configs.set_switches(
        ModelConfig(name="preprocessing"), recipe(preprocessing={}).triton
    )
    require(recipe())


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"resnet": {}}, "resnet is not a model of ensemble_python_resnet50"),
        ({NETWORK: {"max_batch_size": 4}}, "sets max_batch_size, which is not a switch"),
        ({NETWORK: {"response_cache": {"enable": True}}}, "response_cache, which is not a switch"),
        ({NETWORK: {"instance_group": [{"cont": 2}]}}, 'no field named "cont"'),
        ({NETWORK: {"instance_group": [{"kind": "KIND_TPU"}]}}, "KIND_TPU"),
        ({NETWORK: {"instance_group": [{"count": "two"}]}}, "instance_group"),
        ({NETWORK: {"dynamic_batching": {"preserve": True}}}, 'no field named "preserve"'),
        ({NETWORK: {"dynamic_batching": 5}}, "dynamic_batching"),
    ],
)
def test_what_triton_does_not_know_is_refused_in_one_line(
    wanted: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as refused:
        require(recipe(**wanted))
    assert words in refused.value.cause and "\n" not in refused.value.cause
