from __future__ import annotations

from pathlib import Path

import pytest

from scripts.base.errors import UserError
from scripts.settings import settings
from scripts.settings.settings import DEFAULTS
from scripts.steps import export


def load(dotenv: Path, **environment: str) -> settings.Settings:
    return settings.load(environment, dotenv)


def test_the_command_line_wins_over_dotenv_and_that_over_defaults(tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text("ARCH=resnet18\nHTTP_PORT=8100\n# PRECISION=fp32\n")
    loaded = load(dotenv, ARCH="resnet34", HOME="/root")
    assert loaded["ARCH"] == "resnet34"
    assert loaded["HTTP_PORT"] == "8100"
    assert loaded["PRECISION"] == DEFAULTS["PRECISION"]
    assert loaded.given == {"ARCH", "HTTP_PORT"}


def test_what_is_said_now_wins_over_what_was_said_earlier(tmp_path: Path) -> None:
    earlier = DEFAULTS | {"ARCH": "resnet18", "WEIGHTS": "random"}
    wished = load(tmp_path / "none", ARCH="resnet34").over(earlier)
    assert (wished["ARCH"], wished["WEIGHTS"]) == ("resnet34", "random")


def test_an_empty_setting_is_no_setting(tmp_path: Path) -> None:
    assert load(tmp_path / "none", ARCH="", WEIGHTS=" ").values == DEFAULTS


def test_an_unknown_arch_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ARCH=resnet5 is none of torchvision's") as refused:
        load(tmp_path / "none", ARCH="resnet5")
    assert refused.value.remedy.startswith("did you mean resnet50, ")


def test_in_a_container_it_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="ARCH=resnet5"):
        export.main(["--arch", "resnet5", "--out", str(tmp_path / "onnx")])
    assert capsys.readouterr().out == ""  # else the error would stand behind what it was loading


@pytest.mark.parametrize(
    "wrong",
    [
        {"PRECISION": "fp8"},
        {"FLAVOUR": "mainframe"},
        {"PREPROCESS": "by hand"},
        {"HTTP_PORT": "0"},
        {"HTTP_PORT": "65536"},
        {"HTTP_PORT": "8001"},
        {"GRPC_PORT": "grpc"},
        {"NETWORK_THREADS": "-1"},
        {"CORES": "2.5"},
        {"MAX_MEGAPIXELS": "many"},
        {"MAX_MEGAPIXELS": "nan"},
    ],
)
def test_nonsense_is_refused_with_its_remedy(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(UserError) as refused:
        load(tmp_path / "none", **wrong)
    (name,) = wrong
    assert name in refused.value.cause and refused.value.remedy
