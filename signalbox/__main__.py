"""``python -m signalbox``."""

import sys

from signalbox.ops.cli import main

if __name__ == "__main__":
    sys.exit(main())
