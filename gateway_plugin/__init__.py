"""The program beside the gateway: authenticates, submits and answers through Tyk's coprocess protocol."""

import os

# gRPC's handlers of fork() run in each process that is started here, between fork and exec, while gRPC's own threads
# work on: in 4 of 600 starts under load the new process died of SIGSEGV there, and some starts hung. Nothing forks
# without exec, so they are not needed. gRPC looks at the variable when it is imported, so this comes first.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
