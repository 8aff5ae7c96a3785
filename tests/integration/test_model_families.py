"""What people bring may serve unapproved, and every operation that TensorFlow has was looked at."""

import json
from pathlib import Path

import pytest

from tests.rigs import models
from tests.rigs.modelfamilies import families
from workers.runner import savedmodel
from workers.runner.operations import OperationFindings, judge, known


@pytest.fixture(scope="module")
def made() -> Path:
    return families()


def test_models_of_every_family_need_nobodys_approval(made: Path) -> None:
    brought = sorted(path.parent for path in made.glob("*/*/saved_model.pb"))
    brought += [models.half_plus_two(), models.half_plus_two_v1(), models.digits().path]
    assert len(brought) == 27
    refused = {
        path.parent.name: found for path in brought if (found := judge(savedmodel.read(path)[1])) != OperationFindings()
    }
    assert refused == {}


def test_an_operation_that_tensorflow_adds_fails_here_until_somebody_has_looked_at_it(made: Path) -> None:
    """Then it gets its line in ``workers/runner/tensorflow_ops.txt``, whose head says what to look at."""
    assert set(json.loads((made / "operations.json").read_text())) - known().keys() == set()
