"""A runner that is confined as any other and, once it is in, tries to get rid of what holds it.

``python -m tests.rigs.lockthief SANDBOX_JSON DATA_FD BEATS_FD GUARD_FD LOCK_FD``: says on its data socket what became
of each of :data:`ATTEMPTS`, as JSON, and then does nothing.
"""

import json
import signal
import socket
import sys
from typing import Final

from tests.rigs.sandboxprobe import attempt
from workers.sandbox.confine import confine
from workers.sandbox.confinement import Sandbox

ATTEMPTS: Final = ("overwrite", "empty", "reopen", "unlock", "weaken", "orphan")

if __name__ == "__main__":
    sandbox, data_fd, _, guard_fd, lock_fd = sys.argv[1], *map(int, sys.argv[2:])
    data, guard = socket.socket(fileno=data_fd), socket.socket(fileno=guard_fd)
    confine(Sandbox.of_argument(sandbox), "cpu")
    token = guard.recv(256).decode().removeprefix("enter ")
    guard.send(f"in {token}".encode())
    data.sendall(json.dumps({name: attempt(f"{name}={lock_fd}") for name in ATTEMPTS}).encode())
    signal.pause()
