"""``python -m gateway_plugin``."""

import os
import sys

# gRPC's fork handlers only warn here: what we start is another program, not a copy of this one. It
# reads this when it is imported, so it cannot wait for the settings.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from gateway_plugin.main import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
