"""One version in the place of another, under clients that ask on, or not where it must not."""

import base64
import io
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import psutil
import pytest
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper
from tritonclient.grpc.model_config_pb2 import ModelConfig

from benchmark.rollouts import clients
from bundle_client import Client
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.artefacts.picture import mug
from scripts.base import files
from tests.plugin import ON_A_GPU, require_docker
from tests.project import (
    Project,
    asked_meanwhile,
    error_lines,
    interrupt,
    picture,
    wait_until,
)
from tests.stand_ins import rehearse

# Short looks at each version: what is tested here is not which of two is faster.
QUICK = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "20"}


def brought_up(folder: Path, exported: Path, flavour: str, **settings: str) -> Project:
    project = Project.copy(folder, FLAVOUR=flavour, **QUICK, **settings)
    project.take(exported)
    project.made("up")
    # Settings that are omitted keep the live version's values.
    for name in ("ARCH", "WEIGHTS"):
        del project.settings[name]
    return project


@pytest.fixture(scope="module", params=["cpu", ON_A_GPU])
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exported: Path
) -> Iterator[Project]:
    """In containers; every other test of rollouts is about processes."""
    require_docker()
    if request.param == "gpu":
        with rehearse(tmp_path_factory.mktemp("rollout-gpu")) as made:
            made.settings |= QUICK
            made.made("up")
            yield made
        return
    made = brought_up(tmp_path_factory.mktemp("rollout"), exported, "cpu")
    yield made
    made.make("clean")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Project]:
    made = brought_up(tmp_path_factory.mktemp("refused"), exported, "local")
    yield made
    made.end()


@contextmanager
def nobody_waits_in_vain(project: Project, pause: float = 0.5) -> Iterator[None]:
    """Under a client of each protocol, which leave the processor to what is tested."""
    with (
        clients(project.http, project.grpc, 2, pause) as load,
        asked_meanwhile(project.readiness) as ready,
    ):
        wait_until(lambda: load.answered, "the first answer", 60)  # a refusal takes less time
        yield
    assert load.faults == []
    assert ready == [200]


def serving(project: Project) -> int:
    return int(project.served_version.name)


def published(project: Project, **settings: str) -> int:
    """A version that is new, and differs in nothing but what it costs."""
    before = {path.name for path in project.served_version.parent.iterdir()}
    assert "published: version" in project.made("publish", **settings)
    (new,) = {path.name for path in project.served_version.parent.iterdir()} - before
    return int(new)


def another_program(project: Project, line: str, then: str) -> None:
    """The preprocessing with a line of its program changed."""
    program = project.path / "model_repository" / "preprocessing" / "1" / "model.py"
    text = program.read_text()
    assert line in text
    program.write_text(text.replace(line, then))


@pytest.fixture
def own_program(local: Project) -> Iterator[Project]:
    program = local.path / "model_repository" / "preprocessing" / "1" / "model.py"
    kept = program.read_text()
    yield local
    program.write_text(kept)


def test_there_and_back(project: Project) -> None:
    first, process, loads = serving(project), project.server_began(), count_loads(project)
    new = published(project, MAX_MEGAPIXELS="40")
    assert serving(project) == first
    with nobody_waits_in_vain(project, pause=0.1):
        output = project.made("rollout", CANARY="20")
        assert f"version {new} is live; 0 of " in output and "20% of the requests" in output
        assert f"version {new} is live" in project.made("history")
        assert f" v{new} · " in project.made("status")
        assert "up already" in project.made("up")  # nothing is left to change
        assert f"version {new}: " in project.made("rollout")  # it serves already
        assert f"version {first} is live; 0 of " in project.made("rollback")
    live = project.path / "build" / "live" / project.network
    assert [path.name for path in live.glob("[0-9]*")] == [str(first)]
    assert project.server_began() == process  # of the server, which was never restarted
    assert count_loads(project) == loads + 2  # there and back, and what serves is not loaded anew


def count_loads(project: Project) -> int:
    """Of the network, in any version."""
    log = project.made("logs", SINCE="1h")
    return log.count(f"ModelInstanceInitialize: {project.network}_0_0 ")


def test_a_canary_gets_its_share_over_grpc(project: Project) -> None:
    """The candidate as a rollout loads it, for a share of 100 in 100."""
    flavour = project.settings["FLAVOUR"]
    config = (project.path / f"build/live/{PIPELINE}/configs/{flavour}.pbtxt").read_text()
    candidate = text_format.Parse(config, ModelConfig())
    candidate.name = f"{PIPELINE}_candidate"
    candidate.parameters["share"].string_value = "100"
    labels = (project.path / "build" / "live" / PIPELINE / "labels.txt").read_bytes()
    parameters = {
        "config": json_format.MessageToJson(candidate, preserving_proto_field_name=True),
        "file:1/none": base64.b64encode(b"none").decode(),
        "file:labels.txt": base64.b64encode(labels).decode(),
    }
    control(project, candidate.name, "load", {"parameters": parameters})
    with Client(url=project.grpc, protocol="grpc") as client:

        def is_shared() -> bool:
            assert client.classify(picture()).labels
            return asked(project, candidate.name) > 0

        wait_until(is_shared, "a request")
        control(project, candidate.name, "unload", {})
        assert client.classify(picture()).labels  # the door does not know yet that it is gone


def control(project: Project, model: str, action: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(
        f"http://{project.http}/v2/repository/models/{model}/{action}",
        json.dumps(body).encode(),
        {"admin-key": project.admin_key},
    )
    urllib.request.urlopen(request, timeout=60).close()


def asked(project: Project, model: str) -> int:
    """From the metrics, which are open."""
    port = project.settings["METRICS_PORT"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    (count,) = re.findall(rf'nv_inference_request_success{{model="{model}".*}} (\d+)', text)
    return int(count)


@pytest.fixture
def repeating(tmp_path: Path, exported: Path) -> Iterator[Project]:
    made = brought_up(tmp_path, exported, "local", CACHE_MB="16")
    yield made
    made.end()


@pytest.mark.rare
def test_no_answer_outlives_its_version(repeating: Project) -> None:
    """Of a picture that every version and each of its processes was asked before."""
    photo = picture((1600, 1200))
    first = answer_to(photo, repeating)
    new = published(repeating, WEIGHTS="random", DECODE="full")
    repeating.made("rollout", ANYWAY="1")
    assert serving(repeating) == new
    second = answer_to(photo, repeating)
    assert second != first
    repeating.made("rollback")
    assert answer_to(photo, repeating) == first
    repeating.made("rollout", ANYWAY="1")
    assert answer_to(photo, repeating) == second


def answer_to(photo: bytes, project: Project) -> bytes:
    """The one that is computed, and given again and again."""
    computed = answered(photo, project, "no-cache")
    before = hits(project)
    assert {answered(photo, project) for _ in range(8)} == {computed}
    wait_until(lambda: hits(project) >= before + 2, "a hit of each step")
    return computed


def answered(photo: bytes, project: Project, cache_control: str = "") -> bytes:
    headers = {"Inference-Header-Content-Length": "0", "Cache-Control": cache_control}
    url = f"http://{project.http}/v2/models/{PIPELINE}/infer"
    with urllib.request.urlopen(urllib.request.Request(url, photo, headers)) as answer:
        length = int(answer.headers["Inference-Header-Content-Length"])
        return bytes(answer.read()[length:])


def hits(project: Project) -> float:
    url = f"http://127.0.0.1:{project.settings['METRICS_PORT']}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(r"^bundle_cache_hits_total\{.*\} (.*)$", text, re.M)))


@pytest.mark.rare
def test_copies_tell_what_a_version_would_have_answered(own_program: Project) -> None:
    """Nobody sees it, and it goes; a rollout that begins with it stops, where no proof saw why."""
    first, alike = serving(own_program), published(own_program, MAX_MEGAPIXELS="40")
    copies = {"SHARE": "100", "MINUTES": "0.1", "VERSION": str(alike)}
    with nobody_waits_in_vain(own_program, pause=0.1):
        output = own_program.made("shadow", **copies)
    assert re.search(rf"version {alike}, unseen: [1-9][0-9,]* copies, 0 differ, 0 failed", output)
    assert serving(own_program) == first
    assert f"version {alike} tried unseen" in own_program.made("history")

    drawing = io.BytesIO()
    mug().save(drawing, "JPEG")  # which the clients send
    size = len(drawing.getvalue())
    fails = f"        assert {size} not in [array(each, 'INPUT_0').size for each in requests]\n"
    another_program(own_program, AT_EVERY_PICTURE, fails + AT_EVERY_PICTURE)
    other = published(own_program)
    with nobody_waits_in_vain(own_program, pause=0.1):
        refused = own_program.make("rollout", VERSION=str(other), SHADOW="6s")
    (line,) = error_lines(refused.stderr)
    assert re.search(r"version \d+ is rejected: ([0-9,]+) of \1 copies of requests failed", line)
    assert serving(own_program) == first

    ends = f"        if {size} in [array(each, 'INPUT_0').size for each in requests]:\n"
    another_program(own_program, fails, f"{ends}            import os; os._exit(1)\n")
    other = published(own_program)
    with nobody_waits_in_vain(own_program, pause=0.1):
        refused = own_program.make("rollout", VERSION=str(other), SHADOW="6s")
    (line,) = error_lines(refused.stderr)
    assert "copies of requests failed" in line and serving(own_program) == first


def test_no_way_back_and_nothing_to_roll_out(local: Project) -> None:
    (line,) = error_lines(local.make("rollback").stderr)
    assert "no version was live before" in line
    (line,) = error_lines(local.make("rollout", VERSION="99").stderr)
    assert "there is no version 99" in line and "make history" in line
    (line,) = error_lines(local.make("rollout", "CANARY=some").stderr)
    assert "CANARY=some must be between 1 and 99" in line
    assert "nothing changed" in local.made("publish")


# Versions that must not serve. Each is refused with one line, no request is lost, the old one
# serves, and the next good one comes to serve.


def network(name: str, data_type: int, size: int) -> bytes:
    """It answers class 7, whatever it is shown."""
    shape = ["batch", 3, size, size]
    scores = [100.0 if each == 7 else 0.0 for each in range(1000)]
    nodes = [
        helper.make_node("Cast", [name], ["shown"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["shown", "axes"], ["grey"], keepdims=0),
        helper.make_node("Unsqueeze", ["grey", "last"], ["column"]),
        helper.make_node("Mul", ["column", "nothing"], ["zeros"]),
        helper.make_node("Add", ["zeros", "scores"], ["output"]),
    ]
    constants = [
        helper.make_tensor("axes", TensorProto.INT64, [3], [1, 2, 3]),
        helper.make_tensor("last", TensorProto.INT64, [1], [1]),
        helper.make_tensor("nothing", TensorProto.FLOAT, [1], [0.0]),
        helper.make_tensor("scores", TensorProto.FLOAT, [1, 1000], scores),
    ]
    graph = helper.make_graph(
        nodes,
        "class 7",
        [helper.make_tensor_value_info(name, data_type, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 1000])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model, full_check=True)
    serialised: bytes = model.SerializeToString()
    return serialised


def replaced(file: Path, content: bytes | str) -> None:
    """Others are links to the same file."""
    file.unlink()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def network_replaced(candidate: Path, content: bytes) -> None:
    """The version's record says that this is what was published."""
    model = candidate / NETWORK
    replaced(model, content)
    record = json.loads((candidate / "version.json").read_text())
    record["hashes"]["resnet50_onnx"]["model.onnx"] = files.sha256(model)
    record["models"]["resnet50_onnx"] = int(candidate.name)
    replaced(candidate / "version.json", json.dumps(record))


def refused(project: Project, cause: str, candidate: Path, **settings: str) -> None:
    before = serving(project)
    with nobody_waits_in_vain(project):
        tried = project.make("rollout", VERSION=candidate.name, **settings)
    assert tried.returncode != 0
    (line,) = error_lines(tried.stderr)
    assert cause in line and "Traceback" not in tried.stderr, line
    assert serving(project) == before
    project.made("status")


NUMBERS = iter(range(20, 50))
NETWORK = "models/resnet50_onnx/model.onnx"


def one_more(project: Project) -> int:
    return published(project, MAX_MEGAPIXELS=str(next(NUMBERS)))


@pytest.fixture(scope="module")
def good(local: Project) -> Path:
    """The folder of a version that could serve, for tests that spoil it in turn; and a copy."""
    folder = local.served_version.parent / str(one_more(local))
    files.link_tree(folder, local.path / "unspoilt")
    return folder


@pytest.fixture
def candidate(local: Project, good: Path) -> Iterator[Path]:
    yield good
    files.link_tree(local.path / "unspoilt", good)


def test_no_model_file(local: Project, candidate: Path) -> None:
    (candidate / NETWORK).unlink()
    refused(local, f"model.onnx of resnet50_onnx in version {candidate.name} is missing", candidate)


def test_a_file_that_is_not_the_published_one(local: Project, candidate: Path) -> None:
    replaced(candidate / NETWORK, (candidate / NETWORK).read_bytes()[:-1000])
    refused(local, "is not the file that was published", candidate)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (network("input", TensorProto.UINT8, 224)[:2000], "cannot be served"),
        (network("input", TensorProto.UINT8, 96), "[-1, 3, 96, 96]"),
        (network("input", TensorProto.UINT8, 224), "the accuracy gate failed at the network"),
    ],
    ids=["truncated", "wrong shape", "wrong answers"],
)
def test_a_network_that_does_not_fit(
    local: Project, candidate: Path, content: bytes, cause: str
) -> None:
    network_replaced(candidate, content)
    refused(local, cause, candidate)


def test_another_picture_size(local: Project, candidate: Path) -> None:
    """Of all versions the configs are one: this takes a restart."""
    manifest = candidate / "onnx" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["onnx"]["input"] = ["uint8", 3, 299, 299]
    replaced(manifest, json.dumps(content))
    refused(local, "takes pictures of", candidate)


def test_a_broken_config(local: Project, candidate: Path) -> None:
    config = local.path / "model_repository" / "preprocessing" / "config.pbtxt"
    kept = config.read_text()
    config.write_text(kept + "instance_group [")
    try:
        refused(local, "preprocessing/config.pbtxt is not a valid model config", candidate)
    finally:
        config.write_text(kept)


@pytest.mark.rare
def test_labels_that_nobody_knows_again(local: Project, assets: Path) -> None:
    """The weights of the live version are trained; those of the next are random, which each of its
    labels says; and then random ones that say they are not."""
    random = local.served_version.parent / str(published(local, WEIGHTS="random"))
    refused(local, "has untrained weights", random)
    before = serving(local)
    with nobody_waits_in_vain(local):
        output = local.made("rollout", VERSION=random.name, ANYWAY="1")
        assert f"version {random.name} is live; 0 of " in output
        assert f"version {before} is live; 0 of " in local.made("rollback")
    assert serving(local) == before
    manifest = random / "onnx" / "manifest.json"
    replaced(manifest, json.dumps(json.loads(manifest.read_text()) | {"untrained": False}))
    refused(local, "but MIN_AGREEMENT requires 20%", random)


@pytest.mark.rare
def test_files_that_change_meanwhile(local: Project) -> None:
    """Triton then loads a model again, as its config on disk says, whenever something that needs it
    is loaded: of the candidate say."""
    config = local.path / "build" / "live" / "preprocessing" / "config.pbtxt"
    number = str(one_more(local))

    def touched() -> int:
        config.touch()
        return 0

    with nobody_waits_in_vain(local), asked_meanwhile(touched):
        assert f"version {number} is live; 0 of " in local.made("rollout", VERSION=number)
        assert "is live; 0 of " in local.made("rollback")


@pytest.mark.rare
def test_a_rollback_outlasts_the_next_up(own_program: Project) -> None:
    """Though the program here is that of the version that was left; and what an earlier version was
    is rolled out when it is published again."""
    program = own_program.path / "model_repository" / "preprocessing" / "1" / "model.py"
    first, kept = serving(own_program), program.read_text()
    program.write_text(kept + "# newer\n")
    new = published(own_program)
    own_program.made("rollout")
    assert serving(own_program) == new
    own_program.made("rollback")
    output = own_program.made("up")
    assert f"version {first} stays live" in output and f"rollout VERSION={new}" in output
    assert "up already" in output and serving(own_program) == first

    own_program.made("rollout", VERSION=str(new))
    program.write_text(kept)
    output = own_program.made("publish")
    assert f"published: version {first}: " in output and output.endswith("next: make rollout\n")
    assert f"version {first} is live" in own_program.made("rollout")


AT_ITS_START = "        self.decoder = "
AT_EVERY_PICTURE = "        pending = ["


@pytest.mark.parametrize(
    ("where", "does", "cause", "settings"),
    [
        (AT_ITS_START, "raise OSError('no such disk')", "no such disk", {}),
        (AT_EVERY_PICTURE, "raise OSError('no such disk')", "no such disk", {}),
        (
            AT_ITS_START,
            "import time; time.sleep(1000)",
            "no answer within 10 s",
            {"START_TIMEOUT": "10"},
        ),
        (
            AT_EVERY_PICTURE,
            "import time; time.sleep(1)",
            "MAX_P99_RATIO=",
            {"MAX_P99_RATIO": "2", "WATCH_SECONDS": "2"},
        ),
    ],
    ids=["fails at its start", "fails at every picture", "hangs at its start", "slow"],
)
def test_a_program_that_must_not_serve(
    own_program: Project, where: str, does: str, cause: str, settings: dict[str, str]
) -> None:
    another_program(own_program, where, f"        {does}\n{where}")
    number = str(one_more(own_program))
    refused(own_program, cause, own_program.served_version.parent / number, **settings)
    if where == AT_ITS_START:  # it never came to say anything on the server that runs
        log = own_program.made("logs")
        assert ("refused: " in log) and (cause in log or settings)


# What is cut off.


def in_the_middle(project: Project, number: int) -> bool:
    """The new version's folder stands beside the old one."""
    live = project.path / "build" / "live"
    return any((live / name / str(number)).exists() for name in ("resnet50_onnx", "preprocessing"))


def rolling_out(project: Project, number: int) -> subprocess.Popen[str]:
    make = project.start_make("rollout", VERSION=str(number))
    wait_until(lambda: in_the_middle(project, number), "the new version to be placed")
    return make


def test_ctrl_c_in_the_middle(local: Project, good: Path) -> None:
    before, number = serving(local), int(good.name)
    with nobody_waits_in_vain(local):
        output = interrupt(rolling_out(local, number))
    assert f"version {before} still serves" in output and "Traceback" not in output
    assert serving(local) == before and not in_the_middle(local, number)
    history = local.made("history")
    assert "was interrupted" not in history and "(rollout): interrupted" in history


def list_placed(project: Project) -> set[Path]:
    live = project.path / "build" / "live"
    return {*live.glob("resnet50_onnx/[0-9]*"), *live.glob("preprocessing/[0-9]*")}


def test_ctrl_c_at_the_end(local: Project, good: Path) -> None:
    """While what has served is removed: either may serve then, and one of them does."""
    before, number, placed = serving(local), int(good.name), list_placed(local)
    with nobody_waits_in_vain(local):
        make = rolling_out(local, number)
        wait_until(lambda: placed - list_placed(local), "the old version to go")
        output = interrupt(make)
        assert "Traceback" not in output and "be recovered" not in output
        if serving(local) == number:  # it came too late
            local.made("rollback")
    assert serving(local) == before and list_placed(local) == placed
    assert local.readiness() == 200


def test_kill_9_of_the_server_in_the_middle(local: Project, good: Path) -> None:
    before, number = serving(local), int(good.name)
    make = rolling_out(local, number)
    pid = json.loads((local.path / "build/run/state.json").read_text())["pid"]
    everyone = psutil.Process(pid).children(recursive=True)
    (server,) = (each for each in everyone if each.name() == "tritonserver")
    server.kill()
    output, _ = make.communicate(timeout=300)
    assert make.returncode != 0 and "Traceback" not in output
    assert len(error_lines(output)) == 1
    assert f"version {before}" in local.made("up")
    assert serving(local) == before and not in_the_middle(local, number)
    assert f"version {before} is live" in local.made("history")


def test_kill_9_in_the_middle_and_the_next_one_comes_to_serve(local: Project, good: Path) -> None:
    before, number = serving(local), int(good.name)
    with nobody_waits_in_vain(local):
        make = rolling_out(local, number)
        os.killpg(make.pid, signal.SIGKILL)
        make.communicate()
        assert f"rollout of version {number} was interrupted" in local.made("history")
        assert f"version {before} stays" in local.made("up")
        assert serving(local) == before and not in_the_middle(local, number)
        local.made("rollout", VERSION=str(number))
    assert serving(local) == number
