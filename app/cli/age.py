"""How long ago something was, in one unit."""

from datetime import datetime


def age(since: datetime, now: datetime) -> str:
    seconds = int((now - since).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
