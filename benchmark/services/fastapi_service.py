"""uvicorn benchmark.services.fastapi_service:app --workers 2"""

from threading import Lock
from typing import Annotated, Any

from fastapi import Body, FastAPI

from benchmark.services.usual import Classifier

app = FastAPI()
classifier = Classifier()
network = Lock()


@app.post("/classify")
def classify(picture: Annotated[bytes, Body(media_type="image/jpeg")]) -> dict[str, Any]:
    pixels = classifier.pixels(picture)
    with network:
        return classifier.answer(pixels)
