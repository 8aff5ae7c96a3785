"""The mutants stay in step with the code: each patch applies, and none is forgotten."""

import pytest

from verification.mutants.__main__ import ROOT, apply
from verification.mutants.catalog import MUTANTS, PATCHES, Mutant


def test_every_patch_has_its_mutant_and_every_mutant_a_number_of_its_own() -> None:
    numbers = [mutant.number for mutant in MUTANTS]
    assert numbers == list(range(1, len(MUTANTS) + 1))
    assert len(MUTANTS) >= 20
    assert sorted(PATCHES.iterdir()) == [mutant.patch for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_patch_applies(mutant: Mutant) -> None:
    assert not apply(mutant.patch, ROOT, "--check")
