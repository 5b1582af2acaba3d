"""What the comparison counts, and what it lays out for the textbook's server."""

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import grpc
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from benchmark import folder, rollouts
from benchmark.compare import SHORTEST_S, Cell, Plan, measure_rounds, sum_up
from benchmark.contenders import OURS, Contender, bundle
from benchmark.load import (
    Answer,
    Ask,
    Connect,
    Question,
    Round,
    measure,
    over_grpc,
    over_http,
    summary,
)
from benchmark.services.usual import Classifier, Setup
from bundle_serving import CACHE
from bundle_serving.address import Address
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.protocol.kserve import pb
from scripts.artefacts.manifest import Manifest
from scripts.base.errors import UserError
from scripts.measuring.confidence import Estimate
from scripts.measuring.photos import Inputs
from scripts.measuring.textbook import server
from scripts.repository import archive


def test_a_round_counts_between_two_answers() -> None:
    """Two clients, an answer each every 0.1 s; what comes after the end counts for nothing."""
    answers = [Answer(n % 2, 0.1 * (n // 2), 0.1 * (n // 2 + 1)) for n in range(22)]
    found = summary(answers, concurrency=2, end=1.05)
    assert found.images_per_second == pytest.approx(20)
    assert found.p50 == pytest.approx(0.1)
    assert len(found.latencies) == 18


def test_of_a_short_round_everything_counts() -> None:
    found = summary([Answer(0, 0, 2), Answer(1, 0, 4)], concurrency=2, end=1)
    assert found.images_per_second == pytest.approx(0.5)
    assert len(found.latencies) == 2


def test_ratios_are_taken_round_by_round() -> None:
    def rounds(*rates: float) -> list[Round]:
        return [Round(rate, [1 / rate]) for rate in rates]

    slow = Cell("photo", 1, "textbook")
    figures = sum_up({Cell("photo", 1, OURS): rounds(90, 100, 120), slow: rounds(20, 25, 26)})
    assert figures[slow].images_per_second == Estimate(25, 20, 26)
    # Round by round: 90 / 20, 100 / 25 and 120 / 26.
    assert figures[slow].ours == {OURS: Estimate(4.5, 4, 120 / 26)}
    assert figures[Cell("photo", 1, OURS)].ours == {}


def test_the_textbook_gets_the_same_network_and_normalises_in_python(tmp_path: Path) -> None:
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", 3, 8, 8])
    scores = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3])
    nodes = [
        helper.make_node("Cast", ["pixels"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["levels", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "deviation"], ["normalised"]),
        helper.make_node("ReduceMean", ["normalised", "axes"], ["output"], keepdims=0),
    ]
    constants = [
        helper.make_tensor("mean", TensorProto.FLOAT, [1], [120.0]),
        helper.make_tensor("deviation", TensorProto.FLOAT, [1], [60.0]),
        helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3]),
    ]
    graph = helper.make_graph(nodes, "means", [pixels], [scores], constants)
    opsets = [helper.make_opsetid("", 18)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets))
    onnx.save(model, tmp_path / "model.onnx")
    manifest = Manifest({"arch": "means"}, True, {"resize": 8, "crop": 8}, {"classes": 3}, {})
    (tmp_path / "manifest.json").write_text(manifest.dump())

    server.lay_out(tmp_path, tmp_path / "repository")
    config = tmp_path / "repository" / "ensemble_python_resnet50" / "config.pbtxt"
    assert "dims: [ 3 ]" in config.read_text()
    (taken,) = onnx.load(tmp_path / "repository" / "resnet50" / "1" / "model.onnx").graph.input
    assert (taken.name, taken.type.tensor_type.elem_type) == ("input", TensorProto.FLOAT)
    beside = {path.name for path in (tmp_path / "repository" / "preprocessing" / "1").iterdir()}
    assert beside == {"model.py", "recipe.json", "vision.py"}


@contextmanager
def http_server(seen: list[str | None]) -> Iterator[Connect]:
    class Seeing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["Cache-Control"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Seeing) as up:
        Thread(target=up.handle_request, daemon=True).start()
        yield over_http(f"127.0.0.1:{up.server_port}", "/")


@contextmanager
def grpc_server(seen: list[bool]) -> Iterator[Connect]:
    class Seeing(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _: object) -> Any:
            def answer(message: bytes, _: object) -> bytes:
                asked = pb.ModelInferRequest.FromString(message)
                seen.append(asked.parameters[CACHE].bool_param)
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    up = grpc.server(ThreadPoolExecutor(1), handlers=[Seeing()])
    port = up.add_insecure_port("127.0.0.1:0")
    up.start()
    yield over_grpc(f"127.0.0.1:{port}")
    up.stop(0)


def test_no_answer_comes_from_memory() -> None:
    """The same pictures are sent again and again, and CACHE_MB may be set."""
    headers, parameters = list[str | None](), list[bool]()
    for up in (http_server(headers), grpc_server(parameters)):
        with up as connect, connect() as ask:
            ask(b"a picture")
    assert (headers, parameters) == (["no-cache"], [False])


@pytest.mark.parametrize("asks_for", [{"certificate": Path("cert.pem")}, {"api_key": "a key"}])
def test_a_server_that_is_open_to_others_is_not_compared(asks_for: dict[str, Any]) -> None:
    up: Any = SimpleNamespace(flavour="local", http=Address("127.0.0.1", 8000, **asks_for))
    with pytest.raises(UserError, match="asks for TLS or keys") as refused:
        bundle(OURS, up)
    assert "make up BIND=127.0.0.1 TLS_CERT= TLS_KEY=" in refused.value.remedy


def test_a_folder_is_not_answered_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    up = SimpleNamespace(settings_at_start=SimpleNamespace(cache_mb=64))
    monkeypatch.setattr(folder, "ensure_server", lambda: up)
    with pytest.raises(UserError, match="CACHE_MB"):
        folder.main()


def test_rollouts_need_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline: Any = None
    monkeypatch.setattr(archive, "numbers", lambda _: [3, 4])
    assert rollouts.find_others(pipeline, 3) == [4]
    monkeypatch.setattr(archive, "numbers", lambda _: [3])
    with pytest.raises(UserError, match="no other version"):
        rollouts.find_others(pipeline, 3)


def test_services_decode_as_few_pixels_as_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DRAFT asks for it: of 3600 pixels, a quarter and not an eighth."""
    file = io.BytesIO()
    Image.new("RGB", (3600, 3600)).save(file, "JPEG")
    asked: list[Any] = []
    draft = JpegImageFile.draft

    def noted(picture: JpegImageFile, *words: Any) -> Any:
        asked.append(words)
        return draft(picture, *words)

    monkeypatch.setattr(JpegImageFile, "draft", noted)
    service = Classifier.__new__(Classifier)
    service.setup = Setup("", "fp32", [], 256, 224, 1, True)
    service.pixels(file.getvalue())
    to_pixels(file.getvalue(), Transform(256, 224))
    theirs, ours = asked
    assert theirs == ours


def test_however_short_each_is_asked() -> None:
    """As with MINUTES=0.001, which a client would not begin in."""
    up = Contender("alone", lambda: nullcontext(lambda picture: picture), lambda answer: "")
    plan = Plan(concurrencies=(2,), rounds=1, seconds=1e-6, longest=1, warm_up=SHORTEST_S)
    found = measure_rounds([up], [Inputs("photo", (b"a picture",))], plan)
    assert all(each.answered for rounds in found.values() for each in rounds)


def test_every_client_is_answered_once_however_short_the_time() -> None:
    def connect() -> AbstractContextManager[Ask]:
        time.sleep(0.01)
        return nullcontext(lambda picture: picture)

    measured = measure(Question("a server", connect, [b"a picture"]), concurrency=2, seconds=0)
    assert measured.answered == 2 and measured.images_per_second > 0
