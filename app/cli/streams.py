"""Makes the standard streams safe: open, and able to print any text from a repository."""

import io
import os
import sys


def make_streams_safe() -> None:
    """Open closed streams on the null device, and escape characters that the terminal's encoding lacks.

    Otherwise the next opened file would take a closed stream's number, and output would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
