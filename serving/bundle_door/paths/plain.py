"""Requests that need no Triton client: a picture or a text in, JSON out.

curl --data-binary @mug.jpg localhost:8000/classify?top=3
curl --data-binary @street.jpg localhost:8000/classify?model=detection
curl -F file=@mug.jpg -F file=@car.jpg localhost:8000/classify
curl --data 'What a day!' localhost:8000/sentiment
"""

import asyncio
import base64
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bundle_door.access.keys import Charged, charge_once
from bundle_door.answers import Answer, Refused, as_json
from bundle_door.limits import MOST_FILES, MOST_NAME
from bundle_door.requests import Request
from bundle_door.triton import Triton
from bundle_door.watching.steps import TIMINGS, Followed, Steps, read_reports, read_timeline
from bundle_door.wire.inference import Signature, classes_of, from_raw
from bundle_door.wire.multipart import File, files
from bundle_door.wire.over_http import values
from bundle_serving.protocol.kserve import pb

MOST_LABELS = 1000
# Of a form's files, each of which may take a core for seconds: the others are left to others.
AT_ONCE = max(1, len(os.sched_getaffinity(0)) // 2)
# Of the files of a form that come after too large ones (bundle_serving.work).
TOO_MUCH = Refused(
    413,
    "the pictures before this one are as large as those of a request may be together; send it in"
    " another request (or raise MAX_MEGAPIXELS)",
)
# What Triton puts before a model's words, and where to look if those say no remedy.
BEFORE = re.compile(r"^(in ensemble '[^']*', |\[request id: [^]]*\] )+")
LOG = "see the server's log (make logs)"
# What Triton says of a frame that comes without its sequence, and where it is asked instead.
NO_SEQUENCE = "must specify a non-zero or non-empty correlation ID"
OF_A_SEQUENCE = "it takes the frames of a sequence: send them to its /infer with a sequence_id"
# A parameter: 1, and the answer says which class each pixel belongs to.
MASK = "mask"

# By their first outputs, those that give no labels.
BOXES, AREAS = "BOXES", "MASK"
USUAL_LABELS = 5
SIDES = ("left", "top", "right", "bottom")

Named = Mapping[str, str]
# What a pipeline finds in a picture, as JSON: labels, boxes, or the areas of each class.
Found = dict[str, Any]


@dataclass
class PlainQuestions:
    triton: Triton
    steps: Steps
    keys: Charged | None = None

    async def classify(self, request: Request, named: Named) -> Answer:
        """What a picture shows; with several pictures, each has its answer or its own error."""
        try:
            check_query(request, "top", "model", TIMINGS, MASK)
            top_of(request.query)
            model = named["model"]
            form = is_form(request)
            sent = await self._files(request) if form else [File("", request.chunks)]
            signature = await self.triton.signature(model, "")
            check_takes_pictures(model, signature)
            check_has_mask(model, signature, request)
        except Refused as refused:
            return explain_refusal(refused)
        if form:
            turns, asked = asyncio.Semaphore(AT_ONCE), 0.0

            async def in_turn(file: File) -> Found | Refused:
                nonlocal asked
                async with turns:
                    if asked > 1:
                        return TOO_MUCH
                    with self.steps.following() as followed:
                        found = await self._find(
                            request, model, signature, file.content, followed.id
                        )
                        share = await share_of(file, followed)
                        asked += share  # not before: others are added meanwhile
                        return found

            return several(model, sent, await asyncio.gather(*map(in_turn, sent)))
        with self.steps.following() as followed:
            found = await self._find(request, model, signature, sent[0].content, followed.id)
            if isinstance(found, Refused):
                return explain_refusal(found)
            return await add_timings({"model": model, **found}, request, followed)

    async def sentiment(self, request: Request, named: Named) -> Answer:
        """The sentiment of a text."""
        try:
            check_query(request, TIMINGS)
            check_is_text(request)
            model = named["model"]
            signature = await self.triton.signature(model, "")
            with self.steps.following() as followed:
                may = request.may_be_repeated
                asked = from_raw(model, "", request.chunks, signature, (), followed.id, may)
                found = values(await self.triton.infer(model, asked, request.onwards))
                (label,), (score,) = found["LABEL"], found["SCORE"]
                return await add_timings({"label": label, "score": score}, request, followed)
        except Refused as refused:
            return explain_refusal(refused)

    async def _files(self, request: Request) -> list[File]:
        sent = await files(request.chunks, request.headers["content-type"], MOST_FILES)
        charge_once(self.keys, request.note, len(sent) - 1)
        if not sent:
            raise Refused(400, "the form has no files; send some: curl -F file=@photo.jpg")
        return sent

    async def _find(
        self,
        request: Request,
        model: str,
        signature: Signature,
        content: Sequence[bytes | memoryview],
        request_id: str,
    ) -> Found | Refused:
        try:
            if not any(content):
                raise Refused(400, "the body is empty; send a file: curl --data-binary @photo.jpg")
            top, mask = top_of(request.query), request.query.get(MASK) == "1"
            outputs = list_outputs(signature, top)
            may = request.may_be_repeated
            asked = from_raw(model, "", content, signature, outputs, request_id, may)
            response = await self.triton.infer(model, asked, request.onwards)
            return read_answer(response, signature, top, mask)
        except Refused as refused:
            return refused


def check_query(request: Request, *known: str) -> None:
    """What is misspelt, or there twice, would otherwise be left out without a word."""
    for name, value in request.query.items():
        if name not in known:
            raise Refused(
                400, f"{name[:50]} is not a parameter of this; known are {', '.join(known)}"
            )
        if len(value) > MOST_NAME:
            raise Refused(400, f"{name} has {len(value)} characters; send {MOST_NAME} at most")
        if name in (TIMINGS, MASK) and value not in ("0", "1"):
            raise Refused(400, f"{name}={value[:20]} is neither 0 nor 1; send {name}=1, or nothing")
    if request.twice:
        raise Refused(400, f"{request.twice} is given twice; give it once")


def top_of(query: Mapping[str, str]) -> int | None:
    if (text := query.get("top")) is None:
        return None
    if not (re.fullmatch("[0-9]{1,4}", text) and 1 <= int(text) <= MOST_LABELS):
        raise Refused(400, f"top={text[:20]} is not a number of labels; use 1 to {MOST_LABELS}")
    return int(text)


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").lower().startswith("multipart/")


def check_is_text(request: Request) -> None:
    """A form would be read as a text itself, with its boundaries."""
    if is_form(request) or not any(request.chunks):
        why = "the body is a form" if is_form(request) else "the body is empty"
        raise Refused(400, f"{why}; send the text as it is: curl --data 'What a day!'")


def check_takes_pictures(model: str, signature: Signature) -> None:
    if (signature.datatype, signature.dims) != ("UINT8", (-1,)) or not signature.output:
        raise Refused(
            400,
            f"{model} does not accept picture files; send its inputs to /v2/models/{model}/infer,"
            " or choose another model",
        )


def check_has_mask(model: str, signature: Signature, request: Request) -> None:
    if request.query.get(MASK) == "1" and signature.output != AREAS:
        raise Refused(400, f"{model} gives no mask; omit {MASK}=1, or choose another model")


def list_outputs(signature: Signature, top: int | None) -> Sequence[Any]:
    """The outputs to ask for; none means all."""
    if signature.output in (BOXES, AREAS):
        return ()
    return [classes_of(signature.output, top or USUAL_LABELS)]


def read_answer(
    response: pb.ModelInferResponse, signature: Signature, top: int | None, mask: bool
) -> Found:
    if signature.output == BOXES:
        return {"boxes": _read_boxes(values(response))[:top]}
    if signature.output == AREAS:
        return _read_areas(response, top, mask)
    return {"labels": [read_label(entry) for entry in values(response)[signature.output]]}


def read_label(entry: str) -> Found:
    """From "probability:index:label", the classification extension's format."""
    probability, index, *name = entry.split(":", 2)
    return {"label": "".join(name), "probability": float(probability), "index": int(index)}


def _read_boxes(found: dict[str, list[Any]]) -> list[Found]:
    corners = iter(round(side, 2) for side in found["BOXES"])
    return [
        {"label": label, "score": round(score, 6), **dict(zip(SIDES, corners, strict=False))}
        for label, score in zip(found["LABELS"], found["SCORES"], strict=True)
    ]


def _read_areas(response: pb.ModelInferResponse, top: int | None, mask: bool) -> Found:
    """The largest first. Of the mask, a byte for each pixel's class, deflated, in base64."""
    at = [output.name for output in response.outputs].index(AREAS)
    height, width = response.outputs[at].shape[-2:]
    pixels = response.raw_output_contents[at]
    response.raw_output_contents[at] = b""  # not as a list of numbers as well
    found = values(response)
    areas = [
        {"label": label, "index": index, "share": round(share, 6)}
        for index, (label, share) in enumerate(zip(found["LABELS"], found["SHARES"], strict=True))
        if share
    ]
    areas.sort(key=lambda area: -area["share"])
    if not mask:
        return {"areas": areas[:top]}
    classes = base64.b64encode(zlib.compress(pixels, 1)).decode()
    return {
        "areas": areas[:top],
        "mask": {"height": height, "width": width, "classes": classes},
    }


async def share_of(file: File, followed: Followed) -> float:
    """How much it was of all that a request may ask for. Others' pictures may have shared its
    batch."""
    await read_reports()
    size = sum(map(len, file.content))
    pictures = [picture for report in followed.reports for picture in report.pictures]
    return next((share for known, *_, share in pictures if known == size), 0.0)


async def add_timings(content: dict[str, Any], request: Request, followed: Followed) -> Answer:
    """With Server-Timing, and with `timings=1` also with the times in the JSON."""
    timeline = await read_timeline(request, followed)
    if request.query.get(TIMINGS) == "1":
        content = {**content, "timings": timeline.as_json()}
    return as_json(content, headers=timeline.header())


def several(model: str, sent: Sequence[File], found: Sequence[Found | Refused]) -> Answer:
    results = [
        {"file": file.name, **({"error": why(each)} if isinstance(each, Refused) else each)}
        for file, each in zip(sent, found, strict=True)
    ]
    refusals = [each for each in found if isinstance(each, Refused)]
    content = {"model": model, "results": results}
    if len(refusals) < len(found):
        return replace(as_json(content), is_whole=not refusals)
    return as_json(content, refusals[0].status, refusals[0].headers)


def explain_refusal(refused: Refused) -> Answer:
    return as_json({"error": why(refused)}, refused.status, refused.headers)


def why(refused: Refused) -> dict[str, str]:
    cause, _, remedy = BEFORE.sub("", str(refused)).partition("; ")
    usual = "make models lists the models" if refused.status == 404 else LOG
    usual = OF_A_SEQUENCE if NO_SEQUENCE in cause else usual
    return {"cause": cause, "remedy": remedy or usual}
