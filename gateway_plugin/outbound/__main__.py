"""``python -m gateway_plugin.outbound``."""

import sys

from gateway_plugin.outbound.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
