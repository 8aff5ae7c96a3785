"""``python -m verification.mutants.carry COMMIT``: the patches that applied at COMMIT, made anew for the present tree.

For after a move or a reformat: a patch's file is followed to where git sees it now, both of its sides are formatted as
the present ones are, and the difference is merged into the present file. What cannot be merged is named, and is a
person's to write again.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from verification.mutants.__main__ import ROOT, apply
from verification.mutants.catalog import PATCHES

_TARGET: Final = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)
_RUFF: Final = Path(sys.executable).with_name("ruff")


def carry(root: Path, patches: Path, commit: str) -> list[str]:
    """Rewrite the patches of a folder that do not apply to ``root``. Returns the names of those that still do not."""
    renamed = _renamed(root, commit)
    left = []
    for patch in sorted(patches.glob("*.patch")):
        if apply(patch, root, "--check"):
            made = _carried(patch, root, commit, renamed)
            if made is None:
                left.append(patch.name)
            else:
                patch.write_text(made)
    return left


def _carried(patch: Path, root: Path, commit: str, renamed: dict[str, str]) -> str | None:
    """The patch for the present tree; None where it did not apply at ``commit`` or meets a later change."""
    text = patch.read_text()
    made = [text[: text.index("diff --git")]]
    with tempfile.TemporaryDirectory(prefix="carry-") as folder:
        work = Path(folder)
        targets = _TARGET.findall(text)
        before = {name: _git(root, "show", f"{commit}:{name}") for name in targets}
        for name, old in before.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(old)
        if apply(patch, work):
            return None
        for name, old in before.items():
            now = renamed.get(name, name)
            if not (root / now).is_file():
                return None
            merged = _merged(root / now, _formatted(old, now, root), _formatted((work / name).read_text(), now, root))
            if merged is None:
                return None
            made.append(_difference((root / now).read_text(), merged, now))
    return "".join(made)


def _merged(present: Path, old: str, mutated: str) -> str | None:
    with tempfile.TemporaryDirectory(prefix="carry-") as folder:
        base, theirs = Path(folder) / "base", Path(folder) / "theirs"
        base.write_text(old)
        theirs.write_text(mutated)
        argv = ["git", "merge-file", "--stdout", str(present), str(base), str(theirs)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


def _formatted(text: str, name: str, root: Path) -> str:
    if not name.endswith(".py"):
        return text
    argv = [str(_RUFF), "format", "--quiet", f"--stdin-filename={root / name}", "-"]
    return subprocess.run(argv, cwd=root, input=text, capture_output=True, text=True, check=True).stdout


def _difference(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{name}", f"b/{name}")
    return f"diff --git a/{name} b/{name}\n" + "".join(lines)


def _renamed(root: Path, commit: str) -> dict[str, str]:
    """Present names of files that git takes for moved since ``commit``."""
    listed = _git(root, "diff", "--find-renames=40%", "--diff-filter=R", "--name-status", commit)
    return {old: new for _, old, new in (line.split("\t") for line in listed.splitlines())}


def _git(root: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True, env=clean).stdout


def main() -> int:
    """0 when every patch applies."""
    parser = argparse.ArgumentParser(prog="python -m verification.mutants.carry", description=__doc__)
    parser.add_argument("commit", help="where they applied")
    left = carry(ROOT, PATCHES, parser.parse_args().commit)
    print("to be written again by hand:", ", ".join(left) or "none")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
