"""python -m benchmark.services.mosec_service --port 8000"""

from typing import Any

import mosec

from benchmark.services.usual import Classifier, Setup


class Classify(mosec.Worker):
    def __init__(self) -> None:
        self.classifier = Classifier()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: bytes) -> dict[str, Any]:
        return self.classifier.classify(data)


if __name__ == "__main__":
    server = mosec.Server()
    server.append_worker(Classify, num=Setup.load().workers, route="/classify")
    server.run()
