"""Ask the program of this container whether it can do its work: for an engine's health check.

``python -IS signalbox/program/healthcheck.py``: with nothing but Python's own library, it takes little more than the
start of the interpreter, and may run every few seconds. Prints what ``/readyz`` answers and ends with 0, or with 1
where that is not 200. Where the program serves no metrics (``SIGNALBOX_METRICS_PORT=0``) nobody can be asked, and it
ends with 0.
"""

import os
import socket
import sys
from collections.abc import Mapping

_TIMEOUT_S = 3.0
_MOST_BYTES = 65_536
_EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # what listens everywhere is asked over loopback


def ask(env: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and words."""
    port = env.get("SIGNALBOX_METRICS_PORT", "").strip()
    if port in {"", "0"}:
        return 0, "not asked: no SIGNALBOX_METRICS_PORT"
    host = env.get("SIGNALBOX_METRICS_HOST", "").strip() or "127.0.0.1"
    answer = b""
    try:
        with socket.create_connection((_EVERY.get(host, host), int(port)), timeout=_TIMEOUT_S) as link:
            link.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            while len(answer) < _MOST_BYTES and (more := link.recv(4096)):
                answer += more
    except (OSError, ValueError) as error:
        return 1, f"no answer: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    is_ready = head.split(b" ", 2)[1:2] == [b"200"]
    return 0 if is_ready else 1, body.decode(errors="replace").strip()


if __name__ == "__main__":
    status, words = ask(os.environ)
    sys.stdout.write(f"{words}\n")
    sys.exit(status)
