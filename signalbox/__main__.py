"""``python -m signalbox``."""

import sys

from signalbox.cli import main

if __name__ == "__main__":
    sys.exit(main())
