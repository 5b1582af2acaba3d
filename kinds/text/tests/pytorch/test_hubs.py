"""What a folder of transformers' keeps."""

from pathlib import Path

import pytest

from kinds.text import classifiers, export
from scripts.base.errors import UserError
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import transformers  # isort: skip

assert torchvision

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
SMALL |= {"intermediate_size": 8, "vocab_size": 9}
WORDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}


def test_an_encoder_of_texts_without_the_last_layer(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab=WORDS).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="lacks 2 weights of BertForSequenceClassification"):
        classifiers.build(str(tmp_path))


def test_a_tokenizer_of_another_network(tmp_path: Path) -> None:
    config = transformers.BertConfig(**SMALL | {"vocab_size": 3})
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizer(vocab=WORDS).save_pretrained(tmp_path)
    spec = export.Classifier(str(tmp_path), 64, ("label_0", "label_1"))
    with pytest.raises(UserError, match="gives tokens that its network does not have"):
        export.export(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()
