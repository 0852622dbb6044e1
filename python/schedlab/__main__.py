"""``python -m schedlab``: the command line, where the program is installed."""

from __future__ import annotations

import os
import shutil
import sys


def main() -> int:
    """Become the program ``schedlab``: that of the variable SCHEDLAB, else the one on the path."""
    program = os.environ.get("SCHEDLAB") or shutil.which("schedlab")
    if program is None:
        sys.stderr.write(
            "error: the program schedlab is not on the path: build it (`make build` in schedlab's repository) and put it there, or "
            "name it in the variable SCHEDLAB\n"
        )
        return 2
    try:
        os.execv(program, ["schedlab", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(f"error: {program}: {error.strerror}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
