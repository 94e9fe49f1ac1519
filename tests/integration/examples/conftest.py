"""Small projects whose examples really run in a sandbox."""

from tests.support.sandboxes import provider

__all__ = ["provider"]
