"""What a folder of transformers' keeps."""

from pathlib import Path

import pytest

from kinds.text import classifiers
from scripts.base.errors import UserError
from scripts.steps.vision import torchvision

# After torchvision, or their imports fail beside a PyTorch for CPUs alone.
import transformers  # isort: skip

assert torchvision

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
SMALL |= {"intermediate_size": 8, "vocab_size": 9}


def test_an_encoder_of_texts_without_the_last_layer(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**SMALL)).save_pretrained(tmp_path)
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}
    transformers.BertTokenizer(vocab=words).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="lacks 2 weights of BertForSequenceClassification"):
        classifiers.build(str(tmp_path))
