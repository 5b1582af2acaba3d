"""python -m benchmark.services.litserve_service --port 8000"""

import argparse
from typing import Annotated, Any

import litserve
from fastapi import Body

from benchmark.services.usual import Classifier, Setup


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.classifier = Classifier()

    def decode_request(self, request: Annotated[bytes, Body(media_type="image/jpeg")]) -> Any:
        return self.classifier.pixels(request)

    def predict(self, pixels: Any) -> dict[str, Any]:
        return self.classifier.answer(pixels)

    def encode_response(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    server = litserve.LitServer(
        Api(api_path="/classify"), accelerator="cpu", workers_per_device=Setup.load().workers
    )
    server.run(
        host="127.0.0.1",
        port=parser.parse_args().port,
        generate_client_file=False,
        log_level="error",
    )
