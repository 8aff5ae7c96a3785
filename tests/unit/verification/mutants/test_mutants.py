"""The mutants stay in step with the code: each patch applies, and none is forgotten."""

import subprocess
from pathlib import Path

import pytest

from verification.mutants.__main__ import ROOT, apply
from verification.mutants.carry import carry
from verification.mutants.catalog import MUTANTS, PATCHES, Mutant


def test_every_patch_has_its_mutant_and_every_mutant_a_number_of_its_own() -> None:
    numbers = [mutant.number for mutant in MUTANTS]
    assert numbers == list(range(1, len(MUTANTS) + 1))
    assert len(MUTANTS) >= 20
    assert sorted(PATCHES.iterdir()) == [mutant.patch for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_patch_applies(mutant: Mutant) -> None:
    assert not apply(mutant.patch, ROOT, "--check")


TABLE = "\n\nNAMES = {\n" + "".join(f'    "name-{number}": {number},\n' for number in range(12)) + "}\n"
OLD = "def limit(value):\n    if value > 9: return 9\n    return value\n\n\ndef other():\n    return 1\n" + TABLE
PRESENT = (
    "def limit(value):\n    if value > 9:\n        return 9\n    return value\n\n\ndef another():\n    return 2\n"
    + TABLE
)
PATCH = """diff --git a/limits.py b/limits.py
--- a/limits.py
+++ b/limits.py
@@ -1,3 +1,3 @@
 def limit(value):
-    if value > 9: return 9
+    if value > 99: return 9
     return value
"""


def test_a_patch_is_carried_over_a_move_and_a_reformat_and_one_that_meets_a_change_is_named(tmp_path: Path) -> None:
    root, patches = tmp_path / "tree", tmp_path / "patches"
    (root / "room").mkdir(parents=True)
    patches.mkdir()

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *named, *arguments], cwd=root, check=True, capture_output=True)

    (root / "limits.py").write_text(OLD)
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "old")
    git("mv", "limits.py", "room/bounds.py")
    (root / "room" / "bounds.py").write_text(PRESENT)
    git("add", "--all")
    (patches / "1-moved.patch").write_text(PATCH)
    gone = PATCH[: PATCH.index("@@")] + "@@ -6,2 +6,2 @@\n def other():\n-    return 1\n+    return 0\n"
    (patches / "2-changed.patch").write_text(gone)

    assert carry(root, patches, "HEAD") == ["2-changed.patch"]
    assert not apply(patches / "1-moved.patch", root)
    assert (root / "room" / "bounds.py").read_text() == PRESENT.replace("value > 9:", "value > 99:")
