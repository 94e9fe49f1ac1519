"""Lists a tree as `fill` left it, before anybody works in it, so that later changes can be found.

It is made on the host, since no program of the project has run yet, and by the same program as later ones inside, so an
untouched file has the same line in both.
"""

import subprocess

from app.core.errors import SandboxError
from app.sandbox.base import LIST_COMMAND
from app.sandbox.host_directories import HostDirectory


def write_base_listing(host_directory: HostDirectory, program: str = LIST_COMMAND[0]) -> None:
    """Blocking. `program` is GNU find."""
    if host_directory.base_listing.exists():
        return
    listed = subprocess.run(
        (program, *LIST_COMMAND[1:]), cwd=host_directory.tree, env={}, capture_output=True, check=False
    )
    if listed.returncode:
        raise SandboxError(f"The new work tree could not be listed: {listed.stderr.decode(errors='replace')}")
    host_directory.mark(listed.stdout)
