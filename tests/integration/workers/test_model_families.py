"""What people bring may serve unapproved, and every operation that TensorFlow has was looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs import models
from tests.rigs.modelfamilies import families
from workers.runner import savedmodel
from workers.runner.operations import OperationFindings, known


@pytest.fixture(scope="module")
def made() -> Path:
    return families()


def test_models_of_every_family_need_nobodys_approval(made: Path) -> None:
    brought = sorted(path.parent for path in made.glob("*/*/saved_model.pb"))
    brought += [models.half_plus_two(), models.half_plus_two_v1(), models.digits().path]
    assert len(brought) == 27
    inspected = {path.parent.name: savedmodel.inspect(path).verdict for path in brought}
    assert {name: found for name, found in inspected.items() if found != OperationFindings()} == {}


@pytest.mark.slow
def test_models_of_every_family_answer_as_with_tensorflows_own_loader(made: Path) -> None:
    brought = [str(path.parent) for path in sorted(made.glob("*/*/saved_model.pb"))]
    brought += [str(path) for path in (models.half_plus_two(), models.half_plus_two_v1(), models.digits().path)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.rigs.loaders", *brought], capture_output=True, check=True, timeout=300
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    assert {path.split("/")[-2] for path in brought} == {name.split("/")[0] for name in found}
    assert {name: how for name, how in found.items() if how} == {}


def test_an_operation_that_tensorflow_adds_fails_here_until_somebody_has_looked_at_it(made: Path) -> None:
    """Then it gets its line in ``workers/runner/tensorflow_ops.txt``, whose head says what to look at."""
    assert set(json.loads((made / "operations.json").read_text())) - known().keys() == set()
