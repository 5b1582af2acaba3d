"""The service of embeddings beside the server: by processes, and by containers."""

import asyncio
import io
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

import docker
from bundle_client import (
    AsyncClient,
    Client,
    ClientError,
    Embedding,
    PictureRefused,
    ServerUnreachable,
)
from extensions.similar import export
from extensions.similar.indexing import PictureIndex
from scripts.base import files
from tests.project import ASSETS, Project, error_lines, free_ports, picture, wait_until

locally = pytest.mark.parametrize("served", ["local"], indirect=True)
WEIGHTS = str(ASSETS / "weights" / "mobilenet_v2_imagenet.safetensors") if ASSETS else "random"


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("embeddings") / "made"
    export.main(out, WEIGHTS)
    return out


@pytest.fixture(scope="module")
def similar(served: Project, network: Path) -> Iterator[Project]:
    """The project with the service up, and a folder of photos: a mug, and the same made smaller."""
    files.link_tree(network, served.path / "build" / "embeddings")
    (port,) = free_ports(1)
    served.settings |= {"EMBEDDINGS": WEIGHTS, "EMBEDDINGS_PORT": str(port)}
    photos = served.path / "photos"
    photos.mkdir()
    (photos / "noise.jpg").write_bytes(picture())
    (photos / "flat.png").write_bytes(flat((300, 200)))
    mug = Image.open(served.path / "model_repository/preprocessing/warmup/mug.jpg")
    mug.save(photos / "mug.jpg")
    mug.resize((150, 120)).save(photos / "smaller.png")
    try:
        served.made("similar", IMG="photos/mug.jpg", IN="photos")
        yield served
    finally:
        stop = "from extensions.similar import service; service.stop()"
        subprocess.run(
            [sys.executable, "-c", stop], cwd=served.path, env=served.environment(), check=True
        )
        shutil.rmtree(photos)


def flat(size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("1", size).save(file, "PNG")
    return file.getvalue()


def where(project: Project) -> str:
    return f"127.0.0.1:{project.settings['EMBEDDINGS_PORT']}"


def stubs(project: Project) -> list[psutil.Process]:
    """The model's processes, below the service's own."""
    if project.settings["FLAVOUR"] == "local":
        state = json.loads((project.path / "build/run/embeddings.json").read_text())
        service = psutil.Process(state["pid"])
    else:
        (container,) = containers(project, "embeddings")
        service = psutil.Process(container.attrs["State"]["Pid"])
    return [each for each in service.children(recursive=True) if "stub" in each.name()]


def containers(project: Project, service: str) -> list[Any]:
    return docker.from_env().containers.list(
        ignore_removed=True, filters={"label": project.labels(service)}
    )


def test_make_similar_prints_the_most_alike_first(similar: Project) -> None:
    (similar.path / "photos" / "letter.jpg").write_text("Dear Sir or Madam")
    asked = similar.make("similar", IMG="photos/mug.jpg", IN="photos", JSON="1", TOP="2")
    (line,) = error_lines(asked.stderr)
    assert asked.returncode != 0 and "letter.jpg: not a readable picture" in line
    first, second, refused = map(json.loads, asked.stdout.splitlines()[-3:])
    assert first["source"] == "photos/smaller.png" and first["likeness"] > second["likeness"]
    assert refused["error"]["kind"] == "PictureRefused"
    assert ("(untrained)" in first["network"]) == (WEIGHTS == "random")

    (similar.path / "photos" / "letter.jpg").unlink()
    again = similar.make("similar", IMG="photos/mug.jpg", IN="photos")
    assert again.returncode == 0 and "starting" not in again.stderr
    assert "photos/smaller.png" in again.stdout.splitlines()[-3]  # of three
    for words, cause in (
        ({"IN": "photos"}, "no picture given"),
        ({"IMG": "photos/mug.jpg"}, "no pictures are indexed"),
        ({"IMG": "photos/mug.jpg", "IN": "nowhere"}, "is not a folder"),
        ({"IMG": "photos/mug.jpg", "IN": "docs"}, "contains no other pictures"),
        ({"IMG": "README.md", "IN": "photos"}, "README.md: not a readable picture"),
    ):
        (line,) = error_lines(similar.make("similar", **words).stderr)
        assert cause in line


def test_an_index_grows_with_its_folder(similar: Project, tmp_path: Path) -> None:
    folder = tmp_path / "indexed"
    shutil.copytree(similar.path / "photos", folder)
    (folder / "letter.jpg").write_text("Dear Sir or Madam")
    asked = similar.make("index", IN=str(folder))
    (line,) = error_lines(asked.stderr)
    assert asked.returncode != 0 and "letter.jpg: not a readable picture" in line
    assert "4 new or changed, 0 as they were; 4 indexed" in asked.stdout
    (folder / "letter.jpg").unlink()

    two = [similar.start_make("index", IN=str(folder)) for _ in range(2)]
    for make in two:
        output, _ = make.communicate()
        assert make.returncode == 0 and "0 new or changed, 4 as they were" in output, output
    assert [Path(each).name for each in found(similar)][:2] == ["mug.jpg", "smaller.png"]

    (folder / "mug.jpg").rename(folder / "cup.jpg")
    (folder / "flat.png").write_bytes(picture(kind="PNG"))
    assert {Path(each).name for each in found(similar)} == {"noise.jpg", "smaller.png"}
    output = similar.made("index", IN=str(folder))
    assert (
        "gone: " in output
        and "mug.jpg; YES=1" in output
        and "2 new or changed, 2 as they were; 5 indexed" in output
    )
    output = similar.made("index", IN=str(folder), YES="1")
    assert "taken out" in output and "4 as they were; 4 indexed" in output
    assert Path(found(similar)[0]).name == "cup.jpg" and len(found(similar)) == 4


def test_an_index_of_another_network_or_a_damaged_one_is_not_asked(
    similar: Project, tmp_path: Path
) -> None:
    shutil.copytree(similar.path / "photos", tmp_path / "one")
    shutil.copytree(similar.path / "photos", tmp_path / "two")
    for name in ("one", "two"):
        similar.made("index", IN=str(tmp_path / name))
    file = similar.path / "build" / "index" / "pictures.zip"
    before = PictureIndex.load(file)
    stale = PictureIndex(replace(before.made_by, network="another", digest="another"))
    stamps = {path: its for path in before.paths() if (its := before.stamp(path))}
    stale.put(stamps, np.ones((len(stamps), 1280), np.float32))
    stale.save(file)
    (line,) = error_lines(similar.make("similar", IMG="photos/mug.jpg").stderr)
    assert "vectors of another network (another)" in line and "make index" in line

    output = similar.made("index", IN=str(tmp_path / "one"))
    assert "building the index anew" in output
    again = PictureIndex.load(file)
    assert again.made_by == before.made_by and set(again.paths()) >= {
        str(tmp_path / name / "mug.jpg") for name in ("one", "two")
    }

    file.write_bytes(file.read_bytes()[:1000])
    for words in ({"IMG": "photos/mug.jpg"}, {"IN": "photos"}):
        command = "similar" if "IMG" in words else "index"
        (line,) = error_lines(similar.make(command, **words).stderr)
        assert "pictures.zip cannot be read" in line and "remove it" in line


def found(project: Project) -> list[str]:
    lines = project.made("similar", IMG="photos/mug.jpg", JSON="1").splitlines()
    return [json.loads(line)["source"] for line in lines if line.startswith("{")]


def test_a_bad_picture_is_its_own_askers_trouble(similar: Project) -> None:
    """Asked at the same time, so that they share batches."""
    asked = [picture(), b"Dear Sir or Madam", flat((8000, 7000))] * 10

    async def ask() -> list[Embedding]:
        async with AsyncClient(where(similar)) as client:
            return [found async for found in client.embed_many(asked, concurrency=16)]

    found = asyncio.run(ask())
    with Client(where(similar)) as client:
        for n, each in enumerate(found[0::3]):
            alone = client.embed(asked[3 * n])
            assert np.linalg.norm(each.vector) == pytest.approx(1, abs=1e-5)
            assert np.allclose(each.vector, alone.vector, atol=1e-4)
    for each, cause in zip(
        found[1:3] * 10, ("not a readable picture", "50 megapixels") * 10, strict=True
    ):
        assert isinstance(each.error, PictureRefused) and cause in each.error.cause


def test_it_comes_back_by_itself_and_nothing_else_is_disturbed(similar: Project) -> None:
    """A python stub that is killed never comes back: its model is loaded again."""
    before = server_since(similar)
    others: list[str] = []
    done = threading.Event()

    def classify() -> None:
        with Client(similar.http) as client:
            while not done.wait(0.1):  # the machine is left room for the start
                result = next(client.classify_many([picture()]))
                others.append(str(result.error) if result.error else "answered")

    other = threading.Thread(target=classify)
    other.start()
    try:
        with Client(where(similar), timeout=10) as client:
            client.embed(picture())
            first, refused = stubs(similar), list[ClientError]()
            first[0].kill()

            def is_another() -> bool:
                """Who asks meanwhile may be refused, or only wait."""
                if fault := why_not(client):
                    refused.append(fault)
                with suppress(psutil.NoSuchProcess):
                    return bool(now := stubs(similar)) and not {*first} & {*now}
                return False

            wait_until(is_another, "other processes of the model")
            wait_until(lambda: why_not(client) is None, "the service to be back")
            assert all("try again in a few seconds" in each.remedy for each in refused)
    finally:
        done.set()
        other.join()
    assert set(others) == {"answered"} and len(others) > 10
    assert server_since(similar) == before


def why_not(client: Client) -> ClientError | None:
    try:
        client.embed(picture())
        return None
    except ClientError as fault:
        return fault


def server_since(project: Project) -> object:
    """Another answer after each start."""
    if project.settings["FLAVOUR"] == "local":
        return project.root()
    (server,) = containers(project, "server")
    return server.attrs["State"]["StartedAt"]


@pytest.mark.rare
@locally
def test_it_runs_beside_functions_of_the_users_own(similar: Project, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("mine.py", "yours.py")]
    try:
        for file in files:
            similar.made("add-callable", NEW=file)
            similar.made("add-callable", FILE=file)
        for model in ("mine", "yours"):
            assert similar.made("ask", MODEL=model) == '{"words": [3]}\n'
        shown = similar.made("similar", IMG="photos/mug.jpg", IN="photos").splitlines()
        assert "photos/smaller.png" in shown[-3]  # of three
    finally:
        for model in ("mine", "yours"):
            similar.make("remove-model", NAME=model)


def test_it_needs_no_server_and_down_stops_it(network: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    project = Project.copy(tmp_path, FLAVOUR="local", EMBEDDINGS=WEIGHTS, EMBEDDINGS_PORT=str(port))
    files.link_tree(network, project.path / "build" / "embeddings")
    warmup = "model_repository/preprocessing/warmup"
    (tmp_path / "other.jpg").write_bytes(picture())
    try:
        project.made("similar", IMG=f"{warmup}/mug.jpg", IN=str(tmp_path))
        kept = stubs(project)
        output = project.made("down")
        assert "no server was running" in output and "embeddings service stopped" in output
        assert kept and not any(each.is_running() for each in kept)
        with Client(where(project)) as client:
            assert isinstance(why_not(client), ServerUnreachable)
    finally:
        project.end()
