"""Small scripts that we run as root inside a machine, before and between the project's commands."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from contextlib import suppress

from app.core.errors import LostSandboxError
from app.sandbox.base import BASE_LISTING, ENV, HOME, LIST_COMMAND, WORKSPACE
from app.sandbox.machine.base import Machine, started
from app.sandbox.machine.execution import ACCOUNT, PLACE
from app.sandbox.machine.execution import AGAIN as GOES_ON

SECONDS = 300.0
MAX_OUTPUT = 1024**2
ARCHIVE = f"{PLACE}/tree.tar.gz"
NUMBER = 1500
"""The uid of the agent's account in a machine with its own kernel."""
_LAYER = f"{PLACE}/layer"
_LEFT_OUT = f"{PLACE}/left-out.json"
LEFT_OUT = f"cat {_LEFT_OUT} 2> /dev/null || echo '[]'"
"""Prints as JSON what failed in the set-up."""

PREPARE = f"""
umask 022
[ "$(id -u {ACCOUNT} 2> /dev/null)" = "$1" ] || {{
  for name in passwd group; do
    others=$(grep -v '^{ACCOUNT}:' /etc/$name)
    printf '%s\n' "$others" > /etc/$name
  done
  echo "{ACCOUNT}:x:$1:" >> /etc/group
  echo "{ACCOUNT}:x:$1:$1::{HOME}:/bin/bash" >> /etc/passwd
}}
mkdir -p {PLACE}/orders {ENV}
chmod 700 {PLACE}
rm -rf {WORKSPACE} {HOME}
mkdir {WORKSPACE} {HOME}
chown {ACCOUNT}: {WORKSPACE} {HOME}
"""

UNPACK = f"""
cd {WORKSPACE}
setpriv --reuid=$(id -u {ACCOUNT}) --regid=$(id -g {ACCOUNT}) --clear-groups --no-new-privs -- \\
  tar --extract --gzip --preserve-permissions --no-same-owner --file=- < {ARCHIVE}
found=$(find . -mindepth 1 ! -type d -printf x | wc -c)
[ "$found" = "$1" ] || {{ echo "$found of $1 files arrived" >&2; exit 3; }}
{shlex.join(LIST_COMMAND)} > {PLACE}/filled
"""
"""Complete or not at all: a missing file would look like a deletion."""

OPEN_ENV = f"rm -rf {ENV}; mkdir {ENV}; chown {ACCOUNT}: {ENV}"

OPEN = f'rm -rf -- "$1"; mkdir -p -- "$1"; chown {ACCOUNT}: "$1"'
"""A directory for a set-up to fill."""

SEAL = f"""
chown -hR root:root "$1"
chmod -R a+rX,go-w "$1"
find /tmp /var/tmp /dev/shm -xdev -mindepth 1 -user {ACCOUNT} -prune -exec rm -rf -- '{{}}' + 2> /dev/null || true
"""
"""What a set-up filled belongs to root from now on, and everything else of it is removed."""

CLEAR = f"rm -rf {WORKSPACE} {HOME} {ARCHIVE} {PLACE}/orders {PLACE}/filled /run/agent-fix-files"
"""Removes the temporary tree; a machine that starts from what is left is prepared and filled again."""

_SYSTEM = " -o ".join(f"-path /usr/{name}" for name in ("bin", "include", "lib", "lib64", "sbin", "share", "src"))
NOTHING_ELSE = (
    f"find / -xdev \\( {_SYSTEM} \\) -prune -o -user {ACCOUNT} -prune -exec rm -rf -- '{{}}' + 2> /dev/null || true"
)
"""Deletes the account's files in other writable places, so that root never executes any of them."""

COLLECT = f"""
mkdir -p {_LAYER}
for path in "$@"; do
  [ "$(realpath -e -- "{WORKSPACE}/$path" 2> /dev/null)" = "{WORKSPACE}/$path" ] || continue
  mkdir -p "$(dirname -- "{_LAYER}/$path")"
  mv -- "{WORKSPACE}/$path" "{_LAYER}/$path"
done
chown -hR root:root {ENV} {_LAYER}
chmod -R a+rX,go-w {ENV} {_LAYER}
find /tmp /var/tmp /dev/shm -xdev -mindepth 1 -user {ACCOUNT} -prune -exec rm -rf -- '{{}}' + 2> /dev/null || true
"""
"""After the set-up: its result belongs to root from now on, and everything else of it is removed."""

FINISH = f"""
for path in "$@"; do
  at="{WORKSPACE}/$path"
  [ -e "{_LAYER}/$path" ] && [ ! -e "$at" ] && [ ! -L "$at" ] || continue
  parent=$(dirname -- "$at")
  [ "$(realpath -m -- "$parent")" = "$parent" ] || continue
  [ -d "$parent" ] || {{ mkdir -p -- "$parent"; chown {ACCOUNT}: "$parent"; }}
  touch -r "$parent" {PLACE}/stamp
  mv -- "{_LAYER}/$path" "$at"
  find "$at" \\( ! -type f -o -links 1 \\) -exec chown -h {ACCOUNT}: '{{}}' +
  touch -r {PLACE}/stamp "$parent"
done
rm -f {ARCHIVE} {PLACE}/stamp
install -m 644 {PLACE}/filled {BASE_LISTING}
echo done > {PLACE}/ready
"""
"""The last step: only a machine that reached it is ever opened again.

What the set-up left in the tree is this machine's own copy, so commands may write to it; but a file with another name
could be one of the system's.
"""

AGAIN = f"[ -s {PLACE}/ready ] && [ -d {WORKSPACE} ] && install -m 644 {PLACE}/filled {BASE_LISTING}"


async def step(machine: Machine, script: str, *arguments: str, seconds: float = SECONDS) -> str:
    """A script's output. Raises SandboxError if it fails or does not end in time."""
    output = bytearray()
    clock = asyncio.timeout(seconds)
    try:
        async with clock, started(machine, ["bash", "-euo", "pipefail", "-c", script, "step", *arguments]) as program:
            while chunk := await program.read():
                output += chunk
                if len(output) > MAX_OUTPUT:
                    raise LostSandboxError("The sandbox sent an invalid message: too much output.", hint=GOES_ON)
            await program.ended()
    except TimeoutError as error:
        if not clock.expired():
            raise
        raise LostSandboxError(f"Preparing the sandbox took longer than {seconds:.0f} s.", hint=GOES_ON) from error
    return output.decode(errors="replace")


async def note_left_out(machine: Machine, sentences: Sequence[str]) -> None:
    await step(machine, f'printf %s "$1" > {_LEFT_OUT}', json.dumps(list(sentences)))


def notes(output: str) -> tuple[str, ...]:
    """The contents of LEFT_OUT. Raises SandboxError if it is anything else."""
    with suppress(ValueError, RecursionError):
        sentences = json.loads(output)
        if isinstance(sentences, list) and all(isinstance(sentence, str) for sentence in sentences):
            return tuple(sentences)
    raise LostSandboxError(
        "The sandbox sent an invalid message: its notes on the set-up cannot be parsed.", hint=GOES_ON
    )
