"""Runs inside a set-up, after an install: checks that a project is imported from the tree.

If it was copied, its copy is removed, and the tree put onto the path. Its words are the name of a module or package of
the project, and the directory of the tree that has it. Standard library only, Python 3.6 or newer.
"""

import importlib.util
import os
import sys
import sysconfig


def is_imported_from(source: str, name: str) -> bool:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        found = None
    places = [found.origin or "", *(found.submodule_search_locations or [])] if found else []
    return any(place.startswith(source) for place in places)


def remove_copy(site: str, name: str) -> None:
    """The modules of the distribution with that name, by its own list of files."""
    for top in os.listdir(site):
        record = os.path.join(site, top, "RECORD")
        if not top.endswith(".dist-info") or not os.path.exists(record):
            continue
        with open(record) as lines:
            own = [line.split(",")[0] for line in lines if not line.startswith("..")]
        if any(path.startswith((name + "/", name + ".py")) for path in own):
            for path in own:
                if ".dist-info" not in path and os.path.exists(os.path.join(site, path)):
                    os.remove(os.path.join(site, path))


def main(name: str, source: str) -> None:
    if not is_imported_from(source, name):
        site = sysconfig.get_paths()["purelib"]
        remove_copy(site, name)
        with open(os.path.join(site, "agent_fix_project.pth"), "w") as file:
            file.write(source)
        print("the project is imported from", source)


if __name__ == "__main__":
    main(*sys.argv[1:])
