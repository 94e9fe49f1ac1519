"""The listing of a tree as `fill` left it, taken before anybody works in it: what changes are found against."""

import asyncio

from app.errors import SandboxError
from app.sandbox.base import LISTING
from app.sandbox.command import Executor
from app.sandbox.workplace import Workplace


async def note_fresh(place: Workplace, executor: Executor) -> None:
    if place.filled.exists():
        return
    listing = bytearray()
    listed = await executor.exec(LISTING, on_output=listing.extend)
    if not listed.ok:
        raise SandboxError(f"The new work tree could not be listed: {listed.output.decode(errors='replace')}")
    await asyncio.to_thread(place.mark, bytes(listing))
