import os
import re
import subprocess
from pathlib import Path

import pytest

from scripts.artefacts.manifest import Torchvision
from scripts.base import files, paths
from scripts.base.errors import UserError, WrongWord
from scripts.program import verbs
from scripts.settings import arguments, documents, dotenv_file, settings
from scripts.settings.arguments import list_idle, require_known
from scripts.settings.settings import ALL, DEFAULTS, VERSION, names
from scripts.steps import export
from tests.project import ROOT, Project


def load(dotenv: Path, **environment: str) -> settings.Settings:
    return settings.Settings.load(environment, dotenv)


def test_the_command_line_wins_over_dotenv_and_that_over_defaults(tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text("ARCH=resnet18\nHTTP_PORT=8100\n# PRECISION=fp32\n")
    loaded = load(dotenv, ARCH="resnet34", HOME="/root")
    assert (loaded.arch, loaded.http_port, loaded.precision) == ("resnet34", 8100, "auto")
    assert loaded.given == {"ARCH", "HTTP_PORT"}


def test_what_is_given_now_wins_over_what_was_set_earlier(tmp_path: Path) -> None:
    earlier = DEFAULTS | {"ARCH": "resnet18", "WEIGHTS": "random"}
    settings = load(tmp_path / "none", ARCH="resnet34").fill_from(earlier)
    assert (settings.arch, settings.weights) == ("resnet34", "random")


def test_an_empty_setting_is_no_setting(tmp_path: Path) -> None:
    assert load(tmp_path / "none", ARCH="", WEIGHTS=" ").values == DEFAULTS


def test_each_setting_has_a_type(tmp_path: Path) -> None:
    loaded = load(tmp_path / "none", NETWORK_THREADS="3", SAMPLES="photos", WEIGHTS="w.pth")
    assert (loaded.network_threads, loaded.preprocess_threads) == (3, None)
    assert loaded.samples == Path("photos").resolve()
    assert loaded.weights == str(Path("w.pth").resolve())
    assert loaded.cores == len(os.sched_getaffinity(0))
    assert {"ARCH", "WEIGHTS"} < {*names(VERSION)} < ALL.keys()


def test_an_unknown_arch_is_refused_with_the_nearest_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ARCH=resnet5 is not one of torchvision's") as refused:
        load(tmp_path / "none", ARCH="resnet5")
    assert refused.value.remedy.startswith("did you mean resnet50, ")
    with pytest.raises(UserError) as refused:
        load(tmp_path / "none", ARCH="drwn")
    assert refused.value.remedy.startswith("did you mean drawn, ")


def test_in_a_container_it_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="ARCH=resnet5"):
        export.export(Torchvision("resnet5"), tmp_path / "onnx")
    assert capsys.readouterr().out == ""  # else the error would stand behind what it was loading


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("PRECISION", "fp8", "auto, fp32, bf16 or int8"),
        ("FLAVOUR", "mainframe", settings.ALL["FLAVOUR"].wanted),
        ("PREPROCESS", "by hand", "python or dali"),
        ("HTTP_PORT", "0", "a port"),
        ("HTTP_PORT", "65536", "a port"),
        ("GRPC_PORT", "grpc", "a port"),
        ("GRPC_PORT", "８００1", "a port"),  # Compose would not take it  # noqa: RUF001
        ("GPUS", "０", settings.ALL["GPUS"].wanted),  # noqa: RUF001
        ("NETWORK_THREADS", "-1", "a positive integer"),
        ("REPLICAS", "-1", "0 or a positive integer"),
        ("CORES", "2.5", "a positive integer"),
        ("MAX_MEGAPIXELS", "many", "a positive number"),
        ("MAX_MEGAPIXELS", "nan", "a positive number"),
        ("MEMORY", "1x", "an amount such as 512m or 5.6g"),
        ("MAX_BODY_MB", "2148", "a number from 1 to 2147"),
        ("MAX_IN_FLIGHT", "5000000000", "a number from 1 to 1000000"),
        ("ALLOWED_HOSTS", "https://a.example", settings.ALL["ALLOWED_HOSTS"].wanted),
        ("ALLOWED_HOSTS", "a.example, b.example:8000", settings.ALL["ALLOWED_HOSTS"].wanted),
        ("ALLOWED_HOSTS", "*.example", settings.ALL["ALLOWED_HOSTS"].wanted),
        ("CORS_ORIGINS", "*", settings.ALL["CORS_ORIGINS"].wanted),
        ("CORS_ORIGINS", "https://a.example, b.example", settings.ALL["CORS_ORIGINS"].wanted),
    ],
)
def test_nonsense_is_refused_with_its_remedy(
    tmp_path: Path, name: str, value: str, wanted: str
) -> None:
    with pytest.raises(UserError) as refused:
        load(tmp_path / "none", **{name: value})
    assert refused.value.cause == f"{name}={value} must be {wanted}"
    assert refused.value.remedy == "fix it here or in .env"


def test_two_ports_are_not_the_same(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="HTTP_PORT=8001, GRPC_PORT=8001"):
        load(tmp_path / "none", HTTP_PORT="8001")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"CANARY": "100"}, "CANARY=100 must be between 1 and 99"),
        ({"TOP": "0"}, "TOP=0 must be a positive integer"),
        ({"LATENCY_MS": "soon"}, "LATENCY_MS=soon must be a positive number"),
        ({"LATENCY_MS": "nan"}, "LATENCY_MS=nan must be a positive number"),
        ({"YES": "0"}, "YES=0 must be 1 or empty"),
    ],
)
def test_arguments_have_types_too(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(UserError) as refused:
        asked = arguments.load(given)
        print(asked.canary, asked.top, asked.latency_ms, asked.yes)
    assert refused.value.cause == wanted
    nothing = arguments.load({})
    assert (nothing.canary, nothing.top, nothing.json) == (None, 5, False)


@pytest.mark.parametrize(
    ("typed", "written", "message"),
    [
        ("ACRH", "", ("unknown setting ACRH", "did you mean ARCH?")),
        ("IMGS", "", ("unknown setting IMGS", "did you mean IMG?")),
        ("img", "", ("unknown setting img", "did you mean IMG?")),
        ("http_prot", "", ("unknown setting http_prot", "did you mean HTTP_PORT?")),
        (
            "",
            "MOST_P99=3",
            (
                "unknown setting MOST_P99 in .env",
                "it is called MAX_P99_RATIO now; make upgrade renames it in .env",
            ),
        ),
        ("XYZZY", "", ("unknown setting XYZZY", "docs/settings.md lists all of them")),
        ("", "HTTP_PROT=8100", ("unknown setting HTTP_PROT in .env", "did you mean HTTP_PORT?")),
        ("", "TOP=3", ("unknown setting TOP in .env", "give it to a command: TOP=…")),
    ],
)
def test_what_is_no_setting_is_refused(
    tmp_path: Path, typed: str, written: str, message: tuple[str, str]
) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text(written)
    with pytest.raises(WrongWord) as refused:
        require_known([typed] if typed else [], dotenv)
    assert (refused.value.cause, refused.value.remedy) == message
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "wrong"),
    [
        ("ARCH=resnet18\n\n# more\nHTTP_PORT 8100\n", 4, "HTTP_PORT 8100"),
        ("HTTP_PORT\nARCH=resnet18\n", 1, "HTTP_PORT"),
        ("ARCH=resnet18\nexport HTTP_PORT\n", 2, "export HTTP_PORT"),
        ("ARCH=resnet18\nWEIGHTS='a\n", 2, "WEIGHTS='a"),
    ],
)
def test_a_line_that_sets_nothing_is_refused(
    tmp_path: Path, text: str, line: int, wrong: str
) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text(text)
    with pytest.raises(UserError) as refused:
        require_known([], dotenv)
    assert refused.value.cause == f".env, line {line}: {wrong} is no setting"
    assert "NAME=value" in refused.value.remedy


def test_a_typed_value_is_refused_before_the_command_is_imported(tmp_path: Path) -> None:
    for name, value in {"ARCH": "resnet5", "CANARY": "some"}.items():
        with pytest.raises(UserError, match=f"{name}={value} "):
            require_known([name], tmp_path / ".env", {name: value})


def test_an_argument_that_a_command_does_not_take_is_told_and_settings_are_not() -> None:
    given = {"MODEL": "zz", "NEW": "1", "ARCH": "resnet18", "JSON": "1", "TOP": " "}
    assert list_idle(verbs.read()["drift"].describe(), given, given) == ["MODEL"]


@pytest.mark.parametrize("verb", verbs.read().values(), ids=lambda verb: verb.name)
def test_a_command_names_the_arguments_that_its_help_and_its_file_do(verb: verbs.Verb) -> None:
    """What is not named is told to change nothing."""
    if not verb.words:
        return
    home = ROOT.joinpath(*verb.module.split("."))
    file = home / "__main__.py" if home.is_dir() else home.with_suffix(".py")
    text = file.read_text()
    read = re.findall(r"(?:asked|given|options|load\(\))\.(\w+)", text)
    read += re.findall(r"(\w+)\.value_in\(", text)
    named = re.findall(r"\b([A-Z][A-Z_0-9]+)=", verb.about)
    words = {*named, *(each.rstrip("_").upper() for each in read)} & arguments.ALL.keys()
    if "find_asked_pipeline" in text:
        words.add("MODEL")
    given = dict.fromkeys(words, "1")
    assert not list_idle(verb.describe(), given, given)


def test_what_others_read_in_dotenv_is_left_to_them(tmp_path: Path) -> None:
    override = tmp_path / "mine.yaml"
    override.write_text("services: {server: {labels: {team: ${TEAM}}}}")
    dotenv = tmp_path / ".env"
    dotenv.write_text(f"COMPOSE_PROJECT_NAME=mine\nTEAM=birds\nCOMPOSE_OVERRIDE={override}\n")
    require_known(["ARCH", "IMG"], dotenv)


def test_an_override_that_is_no_text_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.jpg").write_bytes(b"\xff\xd8")
    (dotenv := tmp_path / ".env").write_text(f"ARCH=drawn\nCOMPOSE_OVERRIDE={tmp_path}/mine.jpg\n")
    require_known([], dotenv)


def test_a_home_that_nobody_has_is_a_folder_here(tmp_path: Path) -> None:
    loaded = load(tmp_path / "none", WEIGHTS="~nobody-of-that-name/w.pth", SAMPLES="~")
    assert loaded.weights == str(Path("~nobody-of-that-name/w.pth").resolve())
    assert loaded.samples == Path.home().resolve()


@pytest.mark.parametrize(
    ("content", "own"),
    [
        ("OWN=mine\n", "mine"),
        ("# OWN=not\nexport OWN = mine  # ours\n", "mine"),
        ("OWN='my own' # ours\n", "my own"),
        ("\ufeffOWN=not\nOWN=mine\n", "mine"),
        ("OWNER=x\n", ""),
        ("OWN=  # the usual one\nARCH=drawn\n", ""),
    ],
)
def test_what_is_read_before_dotenv_can_be_is_read_as_dotenv_does(
    content: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dotenv := tmp_path / ".env").write_text(content)
    monkeypatch.setattr(paths, "DOTENV", dotenv)
    monkeypatch.delenv("OWN", raising=False)
    assert paths.read_early("OWN") == own == dotenv_file.read(dotenv).get("OWN", "")
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshow:\n\t@echo $(OWN_FOLDER)\n")
    shown = subprocess.run(["make", "-s", "show"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.strip() == (own.split() or ["own"])[0]


@pytest.mark.parametrize(
    ("name", "others", "stays"),
    [
        (os.uname().nodename.upper(), {"WSL_DISTRO_NAME": "Debian"}, False),
        (os.uname().nodename, {"WSL_DISTRO_NAME": "Debian", "MAKEFLAGS": " -- NAME=any"}, True),
        (os.uname().nodename, {}, True),
        ("birds", {"WSL_DISTRO_NAME": "Debian"}, True),
    ],
)
def test_the_computers_name_in_wsl_is_not_the_networks(
    name: str, others: dict[str, str], stays: bool
) -> None:
    environment = {"NAME": name, **others}
    arguments.drop_name_of_wsl(environment)
    assert ("NAME" in environment) == stays


@pytest.mark.parametrize(
    "value", ["a$b.jpg", "two words", r"back\slash", "x -- TOP=y", "$$", "$(shell touch made)", ""]
)
def test_a_value_behind_make_is_taken_as_typed(tmp_path: Path, value: str) -> None:
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshow:\n\t@env --null\n")
    command = ["make", "--no-print-directory", "show", f"IMG={value}", "ARCH:=x"]
    plain = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=True
    )
    shown = done.stdout
    environment = dict(line.split("=", 1) for line in shown.split("\0") if line)
    assert sorted(arguments.list_typed(environment)) == ["ARCH", "IMG"]
    assert (environment["IMG"], environment["ARCH"]) == (value, "x")


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (documents.EXAMPLE, documents.example),
        (documents.PAGE, documents.page),
        (documents.INDEX, documents.index),
    ],
    ids=["example", "page", "index"],
)
def test_the_documents_are_as_they_are_written(path: Path, written: object) -> None:
    assert callable(written)
    assert path.read_text() == written()


def test_a_copy_of_the_example_sets_nothing() -> None:
    assert dotenv_file.read(documents.EXAMPLE) == {}


def test_the_page_of_a_new_kind_is_found(tmp_path: Path) -> None:
    project = Project.copy(tmp_path / "one")
    files.write(project.path / "kinds" / "sum" / "README.md", "# The sum of pixels\n")
    here = {"PYTHONPATH": f"{project.path}:{project.path / 'serving'}"}
    done = project.run_command(".venv/bin/python", "-m", "scripts.settings.documents", **here)
    assert done.returncode == 0, done.stderr
    index = (project.path / documents.INDEX.relative_to(ROOT)).read_text()
    assert "- [The sum of pixels](../kinds/sum/README.md)\n" in index


def test_a_misspelt_setting_stops_make_before_anything_starts() -> None:
    plain = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    refused = subprocess.run(
        ["make", "-C", ROOT, "status", "ACRH=resnet18"], env=plain, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "error: unknown setting ACRH; did you mean ARCH?" in refused.stderr.splitlines()
