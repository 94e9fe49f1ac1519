"""Standard streams as every command may rely on them: there, and able to print whatever a repository holds."""

import io
import os
import sys


def make_streams_safe() -> None:
    """Closed streams lead nowhere, and characters that a terminal's encoding lacks are written as escapes.

    A closed one would otherwise be taken by the next file that is opened, and what is printed would go into that.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
