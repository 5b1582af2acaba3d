"""bentoml serve benchmark.services.bentoml_service:Service"""

from typing import Any

import bentoml
from PIL.Image import Image

from benchmark.services.usual import Classifier, Setup


@bentoml.service(workers=Setup.load().workers, logging={"access": {"enabled": False}})
class Service:
    def __init__(self) -> None:
        self.classifier = Classifier()

    @bentoml.api(route="/classify")
    def classify(self, picture: Image, /) -> dict[str, Any]:
        return self.classifier.classify(picture)
