"""``python -m schedlab``: the command line, which the wheel brings."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find() -> str | None:
    """Where the program ``schedlab`` is: that of the variable SCHEDLAB, the one that was installed with this package, or the one on the path."""
    named = os.environ.get("SCHEDLAB")
    if named:
        return named
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
        # `pip install --target FOLDER`.
        str(Path(__file__).resolve().parent.parent / "bin"),
    ]
    installed = (shutil.which("schedlab", path=folder) for folder in folders)
    return next((program for program in installed if program), None) or shutil.which("schedlab")


def main() -> int:
    """Become the program."""
    program = find()
    if program is None:
        sys.stderr.write(
            "error: the program schedlab is neither beside this package nor on the path: a wheel of `make wheel` brings it, `make build` in schedlab's "
            "repository builds it; the variable SCHEDLAB names another one\n"
        )
        return 2
    try:
        os.execv(program, ["schedlab", *sys.argv[1:]])
    except OSError as error:
        sys.stderr.write(f"error: {program}: {error.strerror}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
