"""What we ourselves do inside a cloud machine as root, before and between commands of the project: small scripts."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from e2b import AsyncSandbox

from app.sandbox.base import ENV, FILLED, HOME, LISTING, WORKSPACE
from app.sandbox.e2b.calls import bounded
from app.sandbox.e2b.cloud import Cloud
from app.sandbox.e2b.execution import ACCOUNT, PLACE, PROGRAM

SECONDS = 300.0
ARCHIVE = f"{PLACE}/tree.tar.gz"
_INSIDE = Path(__file__).with_name("inside.py")
_NUMBER = 1500
_LAYER = f"{PLACE}/layer"
_LEFT_OUT = f"{PLACE}/left-out.json"

PREPARE = f"""
umask 022
id {ACCOUNT} > /dev/null 2>&1 || {{
  echo '{ACCOUNT}:x:{_NUMBER}:' >> /etc/group
  echo '{ACCOUNT}:x:{_NUMBER}:{_NUMBER}::{HOME}:/bin/bash' >> /etc/passwd
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
{shlex.join(LISTING)} > {PLACE}/filled
"""
"""Whole, or not at all: a tree of which something is missing would look like a change that somebody made."""

OPEN_ENV = f"rm -rf {ENV}; mkdir {ENV}; chown {ACCOUNT}: {ENV}"

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
"""Set-up has ended: what it made belongs to root from now on, and nothing else of it stays."""

FINISH = f"""
for path in "$@"; do
  at="{WORKSPACE}/$path"
  [ -e "{_LAYER}/$path" ] && [ ! -e "$at" ] && [ ! -L "$at" ] || continue
  parent=$(dirname -- "$at")
  [ "$(realpath -m -- "$parent")" = "$parent" ] || continue
  [ -d "$parent" ] || {{ mkdir -p -- "$parent"; chown {ACCOUNT}: "$parent"; }}
  mv -- "{_LAYER}/$path" "$at"
done
rm -f {ARCHIVE}
install -m 644 {PLACE}/filled {FILLED}
echo done > {PLACE}/ready
"""
"""The last step: only a machine that came so far is ever opened again."""

AGAIN = f"[ -s {PLACE}/ready ] && [ -d {WORKSPACE} ] && install -m 644 {PLACE}/filled {FILLED}"


async def step(cloud: Cloud, machine: AsyncSandbox, script: str, *arguments: str) -> str:
    """What it says; SandboxError where it fails."""
    words = ["bash", "-euo", "pipefail", "-c", script, "step", *arguments]
    starting = machine.commands.run(shlex.join(words), background=True, user="root", timeout=0)
    running = await bounded(starting, "preparing the sandbox", seconds=cloud.seconds)
    done = await bounded(running.wait(), "preparing the sandbox", seconds=SECONDS)
    return done.stdout


async def furnish(cloud: Cloud, machine: AsyncSandbox) -> None:
    """Our program, the agent's account and empty directories; nothing of the project yet."""
    await cloud.upload(machine, PROGRAM, _INSIDE.read_bytes())
    await step(cloud, machine, PREPARE)


async def note_left_out(cloud: Cloud, machine: AsyncSandbox, sentences: Sequence[str]) -> None:
    await step(cloud, machine, f'printf %s "$1" > {_LEFT_OUT}', json.dumps(list(sentences)))


async def left_out(cloud: Cloud, machine: AsyncSandbox) -> tuple[str, ...]:
    return tuple(json.loads(await step(cloud, machine, f"cat {_LEFT_OUT} 2> /dev/null || echo '[]'")))
