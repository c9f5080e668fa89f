"""`python -m affect_xp` is the command `affect-xp`."""

import sys

from affect_xp.cli import main

if __name__ == "__main__":
    sys.exit(main())
