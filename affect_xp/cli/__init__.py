"""The command `affect-xp`."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted."""
    try:
        from affect_xp.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("cyclopts", "rich"):
            raise
        sys.stderr.write("affect-xp: the command line needs more packages: pip install 'affect_xp[cli]'\n")
        return 1
    return run(arguments)
