"""``python -m gateway_plugin``."""

import sys

from gateway_plugin.main import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
