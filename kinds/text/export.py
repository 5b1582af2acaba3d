"""A text classifier -> ONNX, checked against PyTorch, and its tokenizer.

    python -m kinds.text.export --source minilm --longest 512 \
        --labels negative,positive --out build/sentiment

Out: model.onnx (INPUT_IDS and ATTENTION_MASK [batch, tokens] -> SCORES), tokenizer.json,
reference-*.npz (tokens and PyTorch's scores), golden.npz (texts and PyTorch's scores) and
manifest.json. Installed atomically.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.agreement import Agreement, Bound, compare
from kinds.text import sentences
from scripts.artefacts.exporting import start, unless_it_fits
from scripts.artefacts.manifest import NOTHING, of_folder, read_pins, write_manifest
from scripts.artefacts.progress import step, tell
from scripts.base import files
from scripts.base.errors import UserError, reword_faults

BOUNDS = {"fp32": Bound(0.01), "fp16": Bound(0.05)}
MAKERS = ("torch", "transformers", "tokenizers", "onnx", "onnxscript")


@dataclass(frozen=True)
class Classifier:
    source: str  # a name on the hub, a folder, or minilm
    longest: int  # in tokens
    labels: tuple[str, ...]
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    task_prefix: str = ""  # put before each text

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        found: dict[str, Any] = {"source": self.source, "max_seq_len": self.longest}
        found["precision"] = self.precision
        if self.task_prefix:
            found["task_prefix"] = self.task_prefix
        if parts := of_folder(Path(self.source), before):
            found["files"] = parts
        if self.source == sentences.MINILM:
            found["sentences"] = files.sha256(sentences.PATH)
        return found | {"versions": read_pins(*MAKERS)}


def export(spec: Classifier, out: Path) -> None:
    with step(f"loading {spec.source}"):
        from kinds.text import classifiers
        from scripts.steps import checked

        classifier = classifiers.build(spec.source)
    if "accuracy" in classifier.notes:
        notes = classifier.notes
        tell(f"  right on {notes['accuracy']:.1%} of {notes['sentences']} unseen sentences")
    refuse_what_does_not_fit(classifier, spec)
    bound = BOUNDS[spec.precision]
    with files.whole_folder(out) as draft:
        with step("exporting to ONNX"):
            inside = classifier.module
            if spec.precision == "fp16":  # a copy, with float32 scores
                inside = copy.deepcopy(inside).half()
            remedy = "give another classifier: SENTIMENT="
            with reword_faults(f"PyTorch cannot export {spec.source} to ONNX", remedy):
                to_onnx(inside, spec.longest, draft / "model.onnx")
        with step("comparing ONNX with PyTorch"):
            try:
                agreement = _compare_onnx(classifier, spec, draft)
            except IndexError:
                raise UserError(
                    f"the tokenizer of {spec.source} gives tokens that its network does not have",
                    "save the two together, as they were trained",
                ) from None
        checked.require(agreement, bound, "PyTorch")
        classifier.tokenizer.save(str(draft / "tokenizer.json"))
        check = agreement.record(bound) | classifier.notes
        write_manifest(draft, spec.identity(), {"labels": classifier.labels}, check)


def refuse_what_does_not_fit(classifier: Any, spec: Classifier) -> None:
    from kinds.text.serving.texts import MULTIPLE

    if classifier.labels != list(spec.labels):
        raise UserError(
            f"the classifier's labels are {', '.join(classifier.labels)}, and the recipe's "
            f"{', '.join(spec.labels)}",
            "put the classifier's labels into the recipe",
        )
    if classifier.longest < (filled := math.ceil(spec.longest / MULTIPLE) * MULTIPLE):
        raise UserError(
            f"the classifier takes {classifier.longest} tokens, fewer than the {filled} to which "
            f"texts of the recipe's max_seq_len, {spec.longest}, are filled up",
            f"lower it in the recipe, to {classifier.longest // MULTIPLE * MULTIPLE} at most",
        )


def to_onnx(module: Any, longest: int, path: Path) -> None:
    import torch

    from scripts.artefacts.onnx_file import BATCH, save

    tokens = torch.export.Dim("tokens", min=1, max=longest)
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 8:] = 0
    examples = {"INPUT_IDS": torch.full((2, 16), 2000), "ATTENTION_MASK": mask}
    save(module, examples, ({0: BATCH, 1: tokens}, {0: BATCH, 1: tokens}), "SCORES", path)


def _compare_onnx(classifier: Any, spec: Classifier, out: Path) -> Agreement:
    """One text at a time, and many in a padded batch; short ones, and one too long."""
    import numpy as np

    from bundle_serving.protocol import golden
    from kinds.text.serving.texts import set_lengths, to_tokens
    from scripts.steps import checked, networks

    texts = [each.text for each in sentences.read()[::20]]
    tokenizer, original = classifier.tokenizer, networks.make_asker(classifier.module)
    set_lengths(tokenizer, spec.longest)
    together = ([texts[0]], texts, [" ".join(texts * 20)])
    agreement, expected = checked.compare_batches(
        out, original, [to_tokens(each, tokenizer, spec.task_prefix) for each in together]
    )
    alone = _ask_alone(original, [spec.task_prefix + text for text in texts], tokenizer)
    filled = compare(alone, expected[1])
    if not filled.within(BOUNDS["fp32"]):
        raise UserError(
            f"the classifier reads what texts are filled up with ({filled}; {BOUNDS['fp32']})",
            "say in its config.json what it was trained to pass over: pad_token_id",
        )
    questions = [{"QUERY": np.array([[text.encode()]])} for text in texts]
    golden.save(out / "golden.npz", questions, scores=alone)
    return agreement


def _ask_alone(original: Callable[..., Any], texts: Sequence[str], tokenizer: Any) -> Any:
    """Nothing is filled up."""
    import numpy as np

    from kinds.text.serving.texts import to_tokens

    as_long = type(tokenizer).from_str(tokenizer.to_str())
    as_long.no_padding()
    return np.concatenate([original(*to_tokens([text], as_long).values()) for text in texts])


if __name__ == "__main__":
    start(unless_it_fits(export), precision=BOUNDS)
