"""Scripts that we run as root in a cloud machine, in one go if possible, since each call takes time."""

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

PREPARE_MACHINE = f"""
supervisor=$1 files=$2
shift 2
directories=("$@")
mkdir -p {PLACE}
printf %s "$supervisor" | base64 -d > {PROGRAM}
set -- {NUMBER}
{PREPARE}
find /usr/local /opt -xdev -perm /022 ! -type l -exec chmod go-w -- '{{}}' + 2> /dev/null || true
"""
"""What root executes must be writable by root only; a template may be lax about /usr/local, where its Python is."""

FILL = f"""{PREPARE_MACHINE}
set -- "$files"
{UNPACK}
"""
"""Prepared, and filled with what was sent before."""

READY = f"""{FILL}
set -- "${{directories[@]}}"
{FINISH}
{LEFT_OUT}
"""
"""Filled and ready; prints what failed in the set-up."""

REOPEN = f"""
({AGAIN}) || {{ echo unready; exit 0; }}
{LEFT_OUT}
"""
"""Prints that it never became ready, or what failed in the set-up."""

UNREADY = "unready"

OPEN_TOOLS = f'{PREPARE_MACHINE}\nset -- "${{directories[0]}}"\n{OPEN}'
KEEP_TOOLS = f"{SEAL}\n{CLEAR}\n{NOTHING_ELSE}"
KEEP_ENV = f"{COLLECT}\n{CLEAR}\n{NOTHING_ELSE}"
"""Nothing that the set-up's code may write stays in the stored machine."""


def arguments(files: int, *directories: str) -> list[str]:
    """Arguments of PREPARE_MACHINE and everything that starts with it: the number of files, and the directories."""
    return [base64.b64encode(SUPERVISOR.read_bytes()).decode(), str(files), *directories]
