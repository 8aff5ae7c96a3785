"""A CycloneDX 1.6 list of what a locked requirements file installs. Run: ``make sbom``, for one file per program.

The same file gives the same list, so that two releases can be compared: no date, no random number. Made by hand, as
``cyclonedx-bom`` would bring 24 packages into the locked environment to convert a file that already names every
package, version and digest.
"""

# ruff: noqa: INP001  a script beside the files it reads, not a package

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from signalbox import __version__

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")


def sbom(requirements: Path) -> dict[str, Any]:
    """The document. Raises ``ValueError`` for a line that is not a version with its hashes."""
    name = f"signalbox-{requirements.stem}"
    ours = {"type": "application", "bom-ref": name, "name": name, "version": __version__}
    found = list(_locked(requirements.read_text("utf-8")))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": found,
        "dependencies": [{"ref": ours["bom-ref"], "dependsOn": [one["bom-ref"] for one in found]}],
    }


def _locked(text: str) -> Iterator[dict[str, Any]]:
    for line in filter(None, text.replace("\\\n", "").splitlines()):
        pin, digests = _PIN.match(line), re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
        if pin is None or not digests:
            raise ValueError(f"Not a version with its hashes: {line}")
        name, version = pin.groups()
        purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{version}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        }


if __name__ == "__main__":
    json.dump(sbom(Path(sys.argv[1])), sys.stdout, indent=1)
