"""A classifier of texts that brings code of its own is not run."""

from pathlib import Path

import pytest

from scripts.base.errors import UserError
from tests.foreign.test_code import folder_of_code


def test_a_classifier_of_texts_that_brings_code(tmp_path: Path) -> None:
    from kinds.text import classifiers

    marker = tmp_path / "marker"
    folder = folder_of_code(tmp_path / "texts", marker, "AutoModelForSequenceClassification")
    marker.unlink(missing_ok=True)
    with pytest.raises(UserError, match="is not available"):
        classifiers.build(str(folder))
    assert not marker.exists()
