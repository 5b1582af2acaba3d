"""The gpu flavour from nothing, as shipped, on stand-ins for NVIDIA's images: tests/rehearsal.

What one test built serves the next ones; nothing is built twice.
"""

import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray
from PIL import ExifTags, Image
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from bundle_client import Client
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.settings.settings import Settings
from scripts.stacks.gpu import GpuStack
from tests.end_to_end.own.test_own_main import POST
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import (
    LONGEST_S,
    ROOT,
    Project,
    error_lines,
    interrupt,
    picture,
    wait_until,
    words_shown_while,
)
from tests.stand_ins import TAG, rehearse, run
from tests.tables import (
    NAMES,
    ROLLED,
    asked,
    trained,
    without_a_network,
)

pytestmark = pytest.mark.long
RARE = pytest.mark.rare


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    require_docker()
    with rehearse(tmp_path_factory.mktemp("gpu")) as project:
        yield project


def plan_of(project: Project) -> Path:
    """Of the version that serves."""
    return project.served_version / "plan" / "model.plan"


def manifest_of(project: Project) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(plan_of(project).with_name("manifest.json").read_text())
    return loaded


def test_from_weights_to_an_answer(gpu: Project) -> None:
    output = gpu.made("up")
    for step in ("export:", "plan: no plan yet", "PASSED TensorRT.trtexec", "accuracy gate", "up:"):
        assert step in output, output
    assert "- network: top-1 equal" in output and "- ensemble: top-1 equal" in output
    manifest: Any = manifest_of(gpu)
    assert manifest["identity"]["TensorRT"] == "11.1.0" and manifest["precision"]["half layers"] > 0
    assert "--profilingVerbosity=detailed" not in manifest["flags"]
    status, halves = gpu.made("status"), manifest["precision"]["half layers"]
    assert f"plan {manifest['plan']['sha256'][:12]} of TensorRT 11.1.0 for " in status
    assert f": fp16, {halves} of " in status


def test_the_export_image_reads_networks_with_protobufs_c_code(gpu: Project) -> None:
    """Which NVIDIA's image turns off; and its entrypoint's banner is gone."""
    asked = "from google.protobuf.internal import api_implementation as a; print(a.Type())"
    image = f"{gpu.compose_project}-export-gpu"
    assert run("docker", "run", "--rm", image, "python3", "-c", asked) == "upb\n"


def test_classify_names_the_mug(gpu: Project, assets: Path) -> None:
    out = gpu.made("classify", IMG=str(assets / "images" / "mug.jpg"))
    assert out.startswith(f"{assets / 'images' / 'mug.jpg'}  ")
    assert out.splitlines()[1].split("  ")[1] == "coffee mug"


def test_doctor_looks_at_the_gpu(gpu: Project) -> None:
    table = gpu.make("doctor", COLUMNS="240").stdout
    # Though there need be no room here for NVIDIA's images: ours are made.
    assert not re.findall(r"^fail +(.+?)  ", table, re.MULTILINE)
    images_are_in = run("docker", "info", "--format", "{{.DockerRootDir}}").strip()
    for found in ("seen from a container", "610.43.02", "24576 MiB", f"all of {TAG}"):
        assert found in table
    assert re.search(rf"images' disk +\d+ GB free in {images_are_in}\b", table)
    old = gpu.make("doctor", REHEARSAL_COMPUTE_CAPABILITY="7.0")
    assert old.returncode != 0 and "FLAVOUR=cpu" in old.stdout


def test_gpus_that_cannot_serve_are_refused_before_anything_is_pulled(gpu: Project) -> None:
    desk, other = "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060"
    for played, cause in (
        ({"REHEARSAL_GPUS": f"{desk}/{other}"}, "choose the ones to serve on: GPUS=0 or GPUS=1"),
        ({"REHEARSAL_GPUS": desk, "REHEARSAL_DRIVER": "570.86"}, "driver 570.86 is older than 580"),
        ({"GPUS": "1"}, "names a GPU that this machine does not have: 1"),
    ):
        refused = gpu.make("up", **played)
        (line,) = error_lines(refused.stderr)
        assert refused.returncode != 0 and cause in line
        assert "image" not in refused.stdout
    twins = gpu.made("up", REHEARSAL_GPUS="NVIDIA Rehearsal GPU/NVIDIA Rehearsal GPU")
    assert "containers see 2 x NVIDIA Rehearsal GPU" in twins and "up already" in twins


def test_a_gpu_that_the_container_lost_is_reported(gpu: Project) -> None:
    server = f"{gpu.compose_project}-server-1"
    run("docker", "exec", server, "touch", "/tmp/gpu-lost")
    assert "warning: the container has lost its GPU" in gpu.made("status")
    # If Triton ends then, Docker starts a new container's life, in which the GPU is there again.
    began = gpu.server_began()
    pids = run("docker", "top", server, "-eo", "pid,args").splitlines()
    (triton,) = (line.split()[0] for line in pids if "bin/tritonserver --model" in line)
    os.kill(int(triton), signal.SIGKILL)
    wait_until(lambda: gpu.server_began() != began, "the container to be started again")
    wait_until(lambda: gpu.readiness() == 200, "it to answer again")


@RARE
def test_the_search_for_settings_runs_whole(gpu: Project) -> None:
    """On one plan, until nothing is left to be tried: one copy of the network, while for more than
    two there is no memory."""
    gpu.made("up")
    env, photo, mine = gpu.path / ".env", gpu.path / "photo.jpg", "# mine\nNETWORK_INSTANCES=2\n"
    photo.write_bytes(picture())
    kept = env.read_text()
    before, began = plan_of(gpu).read_bytes(), gpu.server_began()
    played = {"CORES": "1", "IMAGES": str(photo), "MINUTES": "30", "REHEARSAL_COPIES": "2"}
    env.write_text(mine + kept)
    try:
        (line,) = error_lines(gpu.make("tune", **played).stderr)
        assert "the running gpu server uses the GPU" in line and "STOP=1" in line
        assert gpu.server_began() == began
        output = gpu.made("tune", STOP="1", **played)
        print(output)
        written = env.read_text()
    finally:
        env.write_text(kept)
    for step in ("export:", "plan:", "PASSED", "accuracy gate"):
        assert step not in output  # it is the plan that serves
    assert "current settings: fp16, copies of the network per GPU: 2, preprocessing 2 x 1" in output
    assert re.search(r"GPU: 1, .*: \S+ answers per second at p95 .* than the best so far", output)
    for copies in (3, 4):
        # Again once another preprocessing was found better.
        lines = re.findall(rf"GPU: {copies}, .* is passed over: (.*)", output)
        assert lines
        for line in lines:
            assert "unable to create TensorRT context: " in line and "out of memory" in line
    if "make up" in output:
        # Two copies are what is found best on a busy machine, and then that line stays.
        assert re.match(r"# mine\n(NETWORK_INSTANCES=2\n\n)?# make tune: 20", written)
        assert re.search(
            r"answers per second at p95 .*; TensorRT on NVIDIA \w+ GPU; .* 1 cores", written
        )
        assert "PRECISION" not in written and "THREADS=1" not in written.replace("PREPROCESS_", "")
    else:
        assert written == mine + kept and ".env is unchanged" in output
    assert not (gpu.path / "build" / "tune").exists()
    assert gpu.server_began() != began and plan_of(gpu).read_bytes() == before
    gpu.made("status")
    mark = f"name={gpu.compose_project}-"
    left = run("docker", "ps", "--all", "--filter", mark, "--format", "{{.Names}}").split()
    assert not [name for name in left if "temporary" in name or "sdk" in name]


# Of a machine that others use, too: no test is about it.
SLOWER = "several GPUs became slower"

TWINS = "NVIDIA Rehearsal GPU/NVIDIA Rehearsal GPU"


@RARE
def test_several_gpus_that_share_the_load_are_told_from_one_that_starves(gpu: Project) -> None:
    """By what nvidia-smi plays; the load is real, and none of it may fail."""
    share = [str(gpu.path / ".venv/bin/python"), "-m", "benchmark.several_gpus"]

    def asked() -> tuple[int, str]:
        done = subprocess.run(
            [*share, "--minutes", "0.3"],
            cwd=gpu.path,
            env=gpu.environment(REHEARSAL_GPUS=TWINS),
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    gpu.made("down")
    gpu.made("up", REHEARSAL_GPUS=TWINS)
    try:
        code, output = asked()
        assert "no request failed; busy: GPU 0 90%, GPU 1 90%" in output, output
        assert code == 0 or SLOWER in output, output
        run("docker", "exec", f"{gpu.compose_project}-server-1", "touch", "/tmp/gpu-1-idle")
        code, output = asked()
        assert code == 1 and "GPU 1 starves: it was busy for 0% of the time" in output, output
    finally:
        gpu.made("down")
        gpu.made("up")
    alone = subprocess.run(share, cwd=gpu.path, env=gpu.environment(), capture_output=True)
    assert alone.returncode == 0 and b"one GPU serves" in alone.stdout


UNTRAINED = dict.fromkeys(("PLACES", "CASCADE", "DETECTION", "SEGMENTATION"), "random")
# What stand-ins cannot confirm: cupy and GPU memory take a driver, and untrained networks of these
# two are refused in half precision.
NO_CUPY = "scores on the CPU, in spite of POSTPROCESS=gpu: No module named 'cupy'"
NOT_HERE = {
    "cupy compiles, and GPU memory is shared": NO_CUPY,
    "cupy computes on the GPU, and says whose it is": NO_CUPY,
    "GPU memory does not grow under load": "",
    "TensorRT builds the detector": "disagrees with PyTorch",
    "TensorRT builds segmentation": "disagrees with PyTorch",
}


@RARE
@pytest.mark.parametrize("whose", ["ours", "birds"])
def test_the_proof_runs_whole(gpu: Project, tmp_path: Path, whose: str) -> None:
    """From the export to the rollback, on a small network; in no process list stands the key.
    TensorRT 10 differs in the flags of the plan, which is built with it further down."""
    small = {"ARCH": "squeezenet1_1", "WEIGHTS": "random"}
    if whose == "birds":  # what is proved is the main pipeline, once there is one of one's own
        small = {"ARCH": "", "WEIGHTS": ""}
        gpu.made("up", **small, FROM=str(draw_network(tmp_path / "birds.onnx")))
    own = {*gpu.path.glob("own/**/*")}
    played = {"REHEARSAL_GPUS": TWINS, "REPOSITORY": "s3://somebodys/own", "MINUTES": "1.5"}
    small |= UNTRAINED
    proving = gpu.start_make("prove", **small, **played)
    with ThreadPoolExecutor() as beside:
        shown = beside.submit(words_shown_while, proving)
        found = wait_until(
            lambda: copy_and_key(gpu) or proving.poll() is not None, "its copy's key", 3600
        )
        output = proving.communicate()[0]
    assert proving.returncode, output  # for two rows take a driver
    copy, key = found
    assert not any(key in word for word in shown.result())
    assert "--measurement-interval" in shown.result()  # perf_analyzer's
    report = max(gpu.path.glob("build/proof/*.md"))
    proof = json.loads(report.read_text().partition("```json\n")[2].partition("\n```")[0])
    assert proof["versions"]["TensorRT"] == "11.1.0"
    assert proof["versions"]["Triton"] == "2.51.0"  # the rehearsal's
    rows = {row["claim"]: row["words"] for row in proof["rows"] if not row["confirmed"]}
    print(json.dumps(rows, indent=1))
    for claim, words in NOT_HERE.items():
        assert words in rows.pop(claim)
    rows = {claim: words for claim, words in rows.items() if SLOWER not in words}
    in_float32 = [claim for claim, words in rows.items() if "0 of 0 layers in half" in words]
    assert len(in_float32) == (2 if whose == "birds" else 0)
    for claim in in_float32:
        del rows[claim]
    if whose == "birds":
        assert "would want FROM=" in rows.pop("Docker Compose alone serves")
        for claim in ("TensorRT builds the cascade's small network", "Videos are watched"):
            assert "of resnet50, which is not served here" in rows.pop(claim)
    assert not rows, proof["rows"]
    missing = sum(not row["confirmed"] for row in proof["rows"])
    assert output.count("- confirmed: ") == len(proof["rows"]) - missing
    assert proof["versions"]["plan"]
    assert proof["versions"]["commit"] == ""  # of what is no checkout
    text = report.read_text()
    for private in (gpu.path, ROOT, Path(gpu.settings["SAMPLES"]).parent, platform.node()):
        assert not re.search(rf"\b{re.escape(str(private))}\b", text)  # a name may be short
    assert not copy.parent.exists() and {*gpu.path.glob("own/**/*")} == own
    for kind in ("container", "image", "network"):
        assert copy.name not in run("docker", kind, "ls", "--format", "{{json .}}")
    if whose == "birds":
        gpu.made("up", MAIN="resnet50")
        gpu.made("remove-model", NAME="birds")


def copy_and_key(project: Project) -> tuple[Path, str] | None:
    """Of the proof that runs."""
    for venv in Path("/tmp").glob("triton-bundle-proof-*/*/.venv"):
        key = venv.parent / "build" / "key" / "admin.key"
        if venv.readlink() == project.path / ".venv" and key.exists():
            return venv.parent, key.read_text().strip()
    return None


@RARE
@pytest.mark.parametrize(
    ("pipeline", "ensemble", "network", "shapes"),
    [
        (
            *("sentiment", "sentiment_ensemble", "sentiment_trt"),
            "INPUT_IDS:64x512,ATTENTION_MASK:64x512",
        ),
        ("places", "places_ensemble", "classification_places", "input_0:100x3x256x256"),
        ("cascade", "cascade", "mobilenet_v2_trt", "input:256x3x224x224"),
    ],
)
def test_another_pipeline_gets_a_plan_too(
    gpu: Project, pipeline: str, ensemble: str, network: str, shapes: str
) -> None:
    """From its export to an answer by its own command, on the same server; and after a restart
    nothing is made again."""
    weights = gpu.settings["WEIGHTS"]
    gpu.settings |= {"SENTIMENT": "minilm", "PLACES": "random", "CASCADE": weights}
    photo = gpu.path / "photo.png"
    photo.write_bytes(picture(kind="PNG"))
    command, words = "classify", {"MODEL": pipeline, "IMG": str(photo)}
    if pipeline == "sentiment":
        command, words = "sentiment", {"TEXT": "I love this place!"}
    gpu.made("up")
    done = gpu.make(command, **words)
    assert done.returncode == 0, done.stderr
    for expected in (
        f"{pipeline} plan: no plan yet",
        "PASSED",
        "gate: ",
        "- network: top-1 equal",
    ):
        assert expected in done.stderr, done.stderr
    served = gpu.path / "build" / "live" / network / "1"
    plan = json.loads((served / "plan.json").read_text())
    assert plan["identity"]["shapes"]["maxShapes"] == shapes
    assert "--stronglyTyped" in plan["flags"] and plan["precision"]["half layers"] > 0
    assert not (served / "model.onnx").exists()
    assert "up already" in gpu.made("up")
    gpu.made("down")
    output = gpu.made("up")
    for step in ("export:", "plan:", "trtexec", "gate", "could not be loaded again"):
        assert step not in output, output
    ready = re.findall(r"^ ?(\w+) +\d+ +READY", gpu.made("models", COLUMNS="200"), re.MULTILINE)
    assert {network, ensemble} <= set(ready)
    again = gpu.make(command, **words)
    assert again.returncode == 0 and again.stderr == "", again.stderr


@RARE
def test_what_was_live_is_live_again_after_a_reboot(gpu: Project) -> None:
    """As Docker starts the container again, without a make."""

    def is_ready(ensemble: str) -> bool:
        with suppress(OSError):
            about = f"http://{gpu.http}/v2/models/{ensemble}/ready"
            return bool(urllib.request.urlopen(about).status == 200)
        return False

    noted = json.loads((gpu.path / "build" / "key" / "beside.json").read_text())
    assert noted and all(map(is_ready, noted))
    run("docker", "restart", "--time", "0", f"{gpu.compose_project}-server-1")
    for ensemble in (PIPELINE, *noted):
        wait_until(partial(is_ready, ensemble), ensemble)


@RARE
def test_a_plan_computes_texts_of_all_lengths(gpu: Project) -> None:
    with Client(gpu.http) as client:
        short, long = client.sentiment("I love it!", "I hate this place. " * 2_000)
        assert [short.label, long.label] == ["positive", "negative"]


@RARE
def test_another_network_is_rolled_out_and_back(gpu: Project) -> None:
    """Both plans are loaded at once meanwhile."""
    gpu.made("up")
    before = plan_of(gpu)
    output = gpu.made("publish", ARCH="squeezenet1_1", WEIGHTS="random")
    assert "PASSED TensorRT.trtexec" in output and "- network: top-1 equal" in output
    for command in ("rollout", "rollback"):
        output = gpu.made(command, **ROLLED)
        assert re.search(r"version \d is live; 0 of", output), output
        assert (plan_of(gpu) == before) == (command == "rollback")
        with Client(gpu.http) as client:
            assert len(client.classify(picture()).labels) == 5


@RARE
def test_trees_are_served_by_the_fil_backend(gpu: Project, tmp_path: Path) -> None:
    """Classes by XGBoost, whose next version is LightGBM's; and single values, which the backend
    gives without a dimension of their own."""
    gpu.made("up")
    own = without_a_network(gpu)
    first = trained(tmp_path / "flowers.json", 0)
    rows = tmp_path / "rows.csv"
    rows.write_text("petal,sepal,weight\n0.5,-1,1.5\n2.5,2,\n0,0.25,0\n")
    sent = np.array([[0.5, -1, 1.5], [2.5, 2, np.nan], [0, 0.25, 0]])
    output = own.made("add-model", NAME="flowers", FROM=str(tmp_path / "flowers.json"))
    for step in ("comparing its trees for a GPU", "- network: equal on", "answers as flowers.json"):
        assert step in output, output
    expected = first.predict(xgboost.DMatrix(sent, feature_names=NAMES))
    assert np.allclose(asked(own, rows), expected, atol=1e-5)
    laid_out = own.path / "build" / "live" / "flowers_fil"
    assert {"checkpoint.tl", "manifest.json"} == {path.name for path in laid_out.glob("1/*")}

    known = sent.repeat(20, axis=0), np.repeat([0, 1, 2], 20)
    data = lightgbm.Dataset(*known, feature_name=NAMES)
    options = {"objective": "multiclass", "num_class": 3, "verbose": -1, "min_data_in_leaf": 1}
    second = lightgbm.train(options, data, 3)
    second.save_model(tmp_path / "flowers.txt")
    output = own.made("publish", MODEL="flowers", WEIGHTS=str(tmp_path / "flowers.txt"))
    assert "- network: equal on" in output
    for command, number, served in (
        ("rollout", 2, second.predict(sent)),
        ("rollback", 1, expected),
    ):
        output = own.made(command, MODEL="flowers", **ROLLED)
        assert f"flowers version {number} is live; 0 of" in output
        assert np.allclose(asked(own, rows), served, atol=1e-5)
        assert f"version {number} is live" in own.made("history", MODEL="flowers")
    own.made("up", MODEL="flowers", WEIGHTS=str(tmp_path / "flowers.txt"))
    assert np.allclose(asked(own, rows), second.predict(sent), atol=1e-5)

    values = xgboost.train({}, xgboost.DMatrix(sent, [10, 200, 3000], feature_names=NAMES), 5)
    values.save_model(tmp_path / "prices.json")
    own.made("add-model", NAME="prices", FROM=str(tmp_path / "prices.json"))
    lines = own.made("ask", MODEL="prices", IN=str(rows), JSON="1").splitlines()
    given = [json.loads(line)["value"] for line in lines if line.startswith("{")]
    assert np.allclose(given, values.predict(xgboost.DMatrix(sent, feature_names=NAMES)), rtol=1e-5)
    for name in ("flowers", "prices"):
        own.made("remove-model", NAME=name)


@RARE
def test_another_gpu_and_tensorrt_want_another_plan(gpu: Project) -> None:
    """And so does another network. The changes stay for the next test. What was built before does
    not load, keeps nobody else away, and is built anew when asked."""
    gpu.settings["SENTIMENT"] = "minilm"
    gpu.made("sentiment", TEXT="I love this place!")  # there already, unless this test runs alone
    gpu.settings |= {
        "REHEARSAL_TENSORRT": "10.16.1",
        "REHEARSAL_COMPUTE_CAPABILITY": "9.0",
        "OPT_BATCH": "16",
        "ARCH": "squeezenet1_1",
        "WEIGHTS": "random",
    }
    output = gpu.made("up")
    (line,) = (line for line in output.splitlines() if line.startswith("- plan: "))
    for reason in (
        "TensorRT: 11.1.0 -> 10.16.1",
        "compute capability: 8.6 -> 9.0",
        "onnx: ",
        "shapes.optShapes: input:32x3x224x224 -> input:16x3x224x224",
    ):
        assert reason in line
    assert "PASSED TensorRT.trtexec" in output
    assert "sentiment_ensemble could not be loaded again: " in output
    done = gpu.make("sentiment", TEXT="I hate this place!")
    assert "sentiment plan: " in done.stderr and "TensorRT: 11.1.0 -> " in done.stderr
    assert done.returncode == 0, done.stderr + gpu.made("logs")
    assert done.stdout.splitlines()[-1].startswith("negative  ")


@RARE
def test_after_a_killed_build_two_at_once_take_turns(gpu: Project) -> None:
    """The first of them builds, and nothing is left of the build that was killed."""
    gpu.made("up")
    for plan in (plan_of(gpu).parent, gpu.path / "build" / "cache" / PIPELINE / "plan"):
        shutil.rmtree(plan)
    make = gpu.start_make("up", REHEARSAL_SECONDS="60")
    wait_until(lambda: drafts(gpu, "trtexec.log"), "the build to begin")
    os.killpg(make.pid, signal.SIGKILL)
    make.communicate()
    assert not plan_of(gpu).exists()
    makes = [gpu.start_make("up"), gpu.start_make("up")]
    outputs = [make.communicate(timeout=LONGEST_S)[0] for make in makes]
    assert [make.returncode for make in makes] == [0, 0], outputs
    assert sorted(text.count("plan: no plan yet") for text in outputs) == [0, 1]
    assert not drafts(gpu)


def test_ctrl_c_in_a_build(gpu: Project) -> None:
    before = plan_of(gpu).read_bytes()
    make = gpu.start_make("up", REHEARSAL_SECONDS="60", OPT_BATCH="64")
    wait_until(lambda: drafts(gpu, "trtexec.log"), "the build to begin")
    assert "interrupted" in interrupt(make)
    assert plan_of(gpu).read_bytes() == before
    assert "up already" in gpu.made("up")  # the server was not touched


def drafts(project: Project, holding: str = "") -> list[Path]:
    """Of plans that are being built."""
    return list((project.path / "build" / "versions" / ".draft").glob(f".plan.*.tmp/{holding}*"))


def test_a_plan_that_fails_the_gate_is_not_published(gpu: Project) -> None:
    """The reference is changed, so that the plan disagrees with it: the old one goes on serving."""
    gpu.made("up")
    reference = gpu.served_version / "onnx" / "reference.npz"
    kept = reference.read_bytes()
    held = dict(np.load(reference))
    held["scores"][:, 7] = 1000.0
    np.savez(reference, **held)
    before = plan_of(gpu)
    try:
        refused = gpu.make("up", OPT_BATCH="8")
        (line,) = error_lines(refused.stderr)
        assert "the accuracy gate failed at the network" in line
        assert plan_of(gpu) == before
        gpu.made("status")
    finally:
        reference.write_bytes(kept)
    gpu.made("up")


@RARE
def test_dali_makes_the_pixels_that_torchvision_makes(gpu: Project) -> None:
    """The pipeline as it is shipped, on the real DALI's CPU operators: within a level or two, where
    it rounds otherwise. That to_pixels with decode="full" is torchvision's, other tests hold."""
    output = gpu.made("up", PREPROCESS="dali")
    assert "- ensemble: top-1 equal" in output
    recipe = gpu.served_version / "models" / "preprocessing_dali" / "transform.json"
    how = replace(Transform.load(recipe), decode="full")
    with InferenceServerClient(gpu.http) as server:
        for name, file in photographs().items():
            pixels = ask_dali(server, file + bytes(100))  # as clients pad files of one request
            difference = np.abs(pixels.astype(int) - to_pixels(file, how))
            assert difference.max() <= 2 and difference.mean() < 0.5, name
        with pytest.raises(InferenceServerException, match="400"):
            ask_dali(server, b"no picture at all")
        ask_dali(server, picture())  # the next one is answered again


def photographs() -> dict[str, bytes]:
    """Sizes that round in every way, each way up, and the modes that photos come in."""
    sizes = [(640, 480), (501, 333), (333, 502), (701, 500), (1001, 90), (80, 100), (1, 1)]
    files = {str(size): picture(size) for size in sizes}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        files[f"orientation {orientation}"] = saved("RGB", "JPEG", exif=exif)
    for mode, kind in (
        ("L", "JPEG"),
        ("CMYK", "JPEG"),
        ("P", "PNG"),
        ("L", "PNG"),
        ("RGB", "WEBP"),
    ):
        files[f"{mode} {kind}"] = saved(mode, kind)
    return files


def saved(mode: str, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(picture((400, 300)))).convert(mode).save(file, kind, **options)
    return file.getvalue()


def ask_dali(server: InferenceServerClient, file: bytes) -> NDArray[np.uint8]:
    tensor = InferInput("INPUT_0", [1, len(file)], "UINT8")
    tensor.set_data_from_numpy(np.frombuffer(file, np.uint8)[None])
    answer = server.infer("preprocessing_dali", [tensor])
    pixels: NDArray[np.uint8] = answer.as_numpy("OUTPUT_0")[0]
    return pixels


@contextmanager
def by_compose_alone(gpu: Project, **settings: str) -> Iterator[Callable[..., str]]:
    gpu.made("down")
    command = ["docker", "compose"]
    for name in ("compose.yaml", "compose.gpu.yaml", gpu.settings["COMPOSE_OVERRIDE"]):
        command += ["--file", name]
    environment = gpu.environment(**settings)

    def compose(*words: str) -> str:
        done = subprocess.run(
            [*command, *words], cwd=gpu.path, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            subprocess.run([*command, "logs"], cwd=gpu.path, env=environment)
            pytest.fail(done.stderr)
        return done.stdout

    try:
        yield compose
    finally:
        compose("down", "--volumes")


@RARE
def test_compose_alone_does_the_same(gpu: Project) -> None:
    small = {"ARCH": "squeezenet1_1", "WEIGHTS": "random", "PREPROCESS": "python"}
    stages = (
        ("PASSED TensorRT.trtexec", "- ensemble: top-1 equal", "laid out: "),
        ("nothing to export", "nothing to build", "has passed the gate", "no candidate to check"),
    )
    # A plan and a version that are not there yet.
    with by_compose_alone(gpu, **small, OPT_BATCH="4", MAX_MEGAPIXELS="33") as compose:
        for expected in stages:
            compose("up", "--wait")
            with Client(gpu.http) as client:
                assert len(client.classify(picture()).labels) == 5
            log = compose("logs", "--no-log-prefix")
            assert all(step in log for step in expected), log


@RARE
def test_compose_alone_takes_in_a_network_of_ones_own(gpu: Project) -> None:
    """And make serves the same pipeline then."""
    own = gpu.path / "own"
    own.mkdir(exist_ok=True)
    draw_network(own / "birds.onnx")
    labels = [f"bird {number}" for number in range(10)]
    (own / "birds.txt").write_text("\n".join(labels))
    (own / "post.py").write_text(POST)
    words = {"FROM": "own/birds.onnx", "LABELS": "own/birds.txt", "ARCH": "", "WEIGHTS": ""}
    stages = (
        ("PASSED TensorRT.trtexec", "- ensemble: ", "laid out: version 1: birds.onnx"),
        ("nothing to build", "has passed the gate", "nothing to lay out"),
    )
    with by_compose_alone(gpu, **words, PREPROCESS="python") as compose:
        for expected in stages:
            compose("up", "--wait")
            with Client(gpu.http) as client:
                (best,) = client.classify(picture(), top=1).labels
            assert best.label in labels and best.probability == 1
            log = compose("logs", "--no-log-prefix")
            assert all(step in log for step in expected), log
            assert "resnet50" not in log
    assert "birds" in Project(gpu.path, gpu.settings | words).made("up")


def test_without_a_gpu_there_is_one_clear_line(tmp_path: Path) -> None:
    require_docker()
    project = Project.copy(tmp_path / "nogpu", FLAVOUR="gpu")
    refused = project.make("up")
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    assert "no container sees a GPU" in line and "FLAVOUR=cpu" in line
    refused = project.make("up", FLAVOUR="cpu", PREPROCESS="dali")
    (line,) = error_lines(refused.stderr)
    assert "PREPROCESS=dali needs a GPU" in line


def test_containers_compute_on_the_gpus_that_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the numbers of nvidia-smi, whatever the shell says; without GPUS, on all."""
    require_docker()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    for settings, seen in (({"GPUS": "0,2"}, "0,2"), ({}, None)):
        stack = GpuStack(Settings.load(settings, Path("no .env")))
        asked = stack.compose.run("--profile", "steps", "config", "--format", "json", quiet=True)
        services = json.loads(asked.stdout)["services"]
        for name in ("engine", "gate", "server"):
            environment = services[name]["environment"]
            assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert environment.get("CUDA_VISIBLE_DEVICES") == seen


def test_compose_takes_all_images_of_one_tag() -> None:
    require_docker()
    command = ["docker", "compose", "-f", "compose.yaml", "-f", "compose.gpu.yaml"]
    command += ["--profile", "steps", "config", "--format", "json"]
    asked = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TRITON_TAG": "27.01"},
        capture_output=True,
        check=True,
    )
    services = json.loads(asked.stdout)["services"]
    of_the_gpu = [
        s for s in services.values() if s.get("image", "").endswith("-gpu") and "build" in s
    ]
    assert {s["build"]["args"]["TRITON_TAG"] for s in of_the_gpu} == {"27.01"}
    assert {s["image"].split("-")[-2] for s in of_the_gpu} == {"export", "server", "sdk"}
    for name in ("probe", "engine", "gate", "server"):
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia", name
