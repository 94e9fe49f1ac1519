"""Limits a process to a few of the machine's processors, where no control group does."""

import os
import random


def limit_processors(pid: int, most: int) -> None:
    """Let a process, and all that it starts later, run on `most` processors, chosen at random.

    Raises OSError if the process is gone. Hostile code can lift the limit for itself: a control group is stronger.
    """
    if hasattr(os, "sched_setaffinity"):  # Linux
        there = sorted(os.sched_getaffinity(0))
        if len(there) > most:
            os.sched_setaffinity(pid, random.sample(there, most))
