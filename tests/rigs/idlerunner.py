"""A runner without TensorFlow, for tests of the guard alone: it enters, leaves, and can misbehave.

``python idlerunner.py MODE DATA_FD BEATS_FD GUARD_FD LOCK_FD``; MODE is ``good``, ``deaf`` (never leaves), ``busy``
(receives nothing more once it is inside) or ``parent`` (starts a grandchild in a session of its own and
writes its pid to the data socket).
"""

import os
import socket
import subprocess
import sys
import time

mode, data_fd, _, guard_fd, lock_fd = sys.argv[1], *map(int, sys.argv[2:])
data, guard = socket.socket(fileno=data_fd), socket.socket(fileno=guard_fd)
if mode == "parent":
    child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True, pass_fds=[lock_fd])
    data.sendall(str(child.pid).encode())
while word := guard.recv(256).decode():
    if word.startswith("enter"):
        guard.send(f"in {word.split()[1]}".encode())
        while mode == "busy":
            time.sleep(60)
    elif mode != "deaf":
        guard.send(b"left")
os._exit(0)
