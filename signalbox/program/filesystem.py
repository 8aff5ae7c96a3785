"""Tells whether a folder lies on a file system whose flocks live in this kernel alone."""

import os
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mounts")
_REMOTE: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "ceph",
        "glusterfs",
        "lustre",
        "afs",
        "gfs2",
        "ocfs2",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "virtiofs",
    }
)


def remote_kind(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Kind of the remote file system that ``folder`` lies on, as the kernel names it; empty: it is a local one."""
    real, found, longest = os.path.realpath(folder), "", -1
    for line in mounts.read_text("utf-8", "replace").splitlines():
        point, kind = line.split()[1:3]
        point = point.replace("\\040", " ")
        is_above = real == point or real.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= longest:
            found, longest = kind, len(point)
    return found if found in _REMOTE else ""
