"""Scripts that we run as root in a new container, in one go, since each start takes a tenth of a second."""

import base64

from app.sandbox.container.image import NEEDED
from app.sandbox.machine.execution import PLACE, PROGRAM, SUPERVISOR
from app.sandbox.machine.steps import AGAIN, ARCHIVE, FINISH, LEFT_OUT, PREPARE, UNPACK

_QUIET = ": > /etc/resolv.conf; echo '127.0.0.1 localhost sandbox' > /etc/hosts"
"""The engine writes this machine's names and name servers there."""

_LACKING = f"""
lacking=$(for name in {" ".join(NEEDED)}; do command -v $name > /dev/null 2>&1 || printf ' %s' $name; done)
[ -z "$lacking" ] || {{ echo "the image lacks$lacking; see agent-fix doctor" >&2; exit 3; }}
"""

FILL = f"""
{_LACKING}
number=$1 supervisor=$2 files=$3
shift 3
directories=("$@")
{_QUIET}
mkdir -p {PLACE}
printf %s "$supervisor" | base64 -d > {PROGRAM}
set -- "$number"
{PREPARE}
cat > {ARCHIVE}
set -- "$files"
{UNPACK}
"""
"""Prepared, and filled from stdin. A set-up continues from here."""

OPEN = f"""{FILL}
set -- "${{directories[@]}}"
{FINISH}
{LEFT_OUT}
"""
"""Filled and ready; prints what failed in the set-up."""

REOPEN = f"""
({AGAIN}) || {{ echo unready; exit 0; }}
{_QUIET}
{LEFT_OUT}
"""
"""Prints that it never became ready, or what failed in the set-up."""

UNREADY = "unready"


def arguments(number: int, files: int, *directories: str) -> list[str]:
    """Arguments of FILL and OPEN: the uid of commands, the number of files, the set-up's paths in the tree."""
    return [str(number), base64.b64encode(SUPERVISOR.read_bytes()).decode(), str(files), *directories]
