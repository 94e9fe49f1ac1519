"""Executed inside when a Python starts, under the name `sitecustomize`: where it finds modules.

The standard library comes first, then the project, then installed packages.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def order() -> "list[str]":
    """Returns the path without the project."""
    own = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(own, "places"), encoding="utf-8") as file:
        places = file.read().split("\n")
    root = os.path.realpath(os.path.join(own, "..", "project"))
    found = [os.path.join(root, place) if place else root for place in places]
    others = [path for path in sys.path if path not in (own, *found)]
    installed = (n for n, path in enumerate(others) if path.endswith(("site-packages", "dist-packages")))
    at = next(installed, len(others))
    sys.path[:] = [*others[:at], *found, *others[at:]]
    return others


_others = order()
if PathFinder.find_spec("usercustomize", _others) is None:
    sys.modules["usercustomize"] = None  # type: ignore[assignment]  # the project's own would be loaded next
# The environment's own, whose name this module has taken.
if (_spec := PathFinder.find_spec(__name__, _others)) is not None and _spec.loader is not None:
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
