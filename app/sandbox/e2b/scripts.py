"""What we do inside a cloud machine as root, in one go where that can be: each call to the cloud takes its time."""

import base64

from app.sandbox.machine.execution import PLACE, PROGRAM, SUPERVISOR
from app.sandbox.machine.steps import (
    AGAIN,
    CLEAR,
    COLLECT,
    FINISH,
    LEFT_OUT,
    NOTHING_ELSE,
    NUMBER,
    OPEN,
    PREPARE,
    SEAL,
    UNPACK,
)

FURNISH = f"""
supervisor=$1 files=$2
shift 2
directories=("$@")
mkdir -p {PLACE}
printf %s "$supervisor" | base64 -d > {PROGRAM}
set -- {NUMBER}
{PREPARE}
find /usr/local /opt -xdev -perm /022 ! -type l -exec chmod go-w -- '{{}}' + 2> /dev/null || true
"""
"""What root executes is written by root only: a template may be generous with /usr/local, where its Python is."""

FILL = f"""{FURNISH}
set -- "$files"
{UNPACK}
"""
"""Furnished, and filled with what was sent before."""

READY = f"""{FILL}
set -- "${{directories[@]}}"
{FINISH}
{LEFT_OUT}
"""
"""Filled and ready; says what was left out of the set-up."""

REOPEN = f"""
({AGAIN}) || {{ echo unready; exit 0; }}
{LEFT_OUT}
"""
"""Says that it never became ready, or what was left out of the set-up."""

UNREADY = "unready"

FURNISH_TOOLS = f'{FURNISH}\nset -- "${{directories[0]}}"\n{OPEN}'
KEEP_TOOLS = f"{SEAL}\n{CLEAR}\n{NOTHING_ELSE}"
KEEP_ENV = f"{COLLECT}\n{CLEAR}\n{NOTHING_ELSE}"
"""Nothing that the set-up's code may write is left in what is kept."""


def arguments(files: int, *directories: str) -> list[str]:
    """Of FURNISH and all that begins with it: how many files come, and what directories it is about."""
    return [base64.b64encode(SUPERVISOR.read_bytes()).decode(), str(files), *directories]
