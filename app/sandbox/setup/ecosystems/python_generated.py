"""Keeps the modules that a build has made in the tree of a set-up (compiled ones, a version), and finds them later.

The tree is thrown away, so as a program inside the set-up it copies them, and writes itself into the environment. Its
words are the tree, the directory for the copies, and its own text. As a module there, it finds each of them as if it
were at its place in the tree, where it is not there. Standard library only, Python 3.6 or newer; every process of the
project imports it, so it imports little.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NOT_SEARCHED = ("build", "dist", "node_modules")


class GeneratedModules:
    def __init__(self, tree: str, kept: str) -> None:
        self.tree = tree
        self.kept = kept

    def find_spec(self, name: str, path: "list[str] | None" = None, target: object = None) -> "ModuleSpec | None":
        for place in sys.path if path is None else path:
            inside = os.path.relpath(place or os.getcwd(), self.tree)
            loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, [".py"])
            found = FileFinder(os.path.join(self.kept, inside), *loaders).find_spec(name)
            if found and found.loader and not inside.startswith(".."):
                return found
        return None


def keep(tree: str, kept: str) -> None:
    """Copy the modules that are newer than the environment."""
    import shutil

    since = os.stat(os.path.join(sys.prefix, "pyvenv.cfg")).st_mtime_ns
    for top, directories, names in os.walk(tree):
        directories[:] = [each for each in directories if each[0] != "." and each not in NOT_SEARCHED]
        for name in names:
            path = os.path.join(top, name)
            if name.endswith((".py", *EXTENSION_SUFFIXES)) and os.lstat(path).st_mtime_ns > since:
                place = os.path.join(kept, os.path.relpath(top, tree))
                os.makedirs(place, exist_ok=True)
                shutil.copy(path, place, follow_symlinks=False)
                print("generated:", os.path.relpath(path, tree))


def main(tree: str, kept: str, text: str) -> None:
    import sysconfig

    keep(tree, kept)
    if os.path.isdir(kept):
        module = os.path.join(sysconfig.get_paths()["purelib"], "agent_fix_generated")
        with open(module + ".py", "w") as file:
            file.write(f"{text}\n\nsys.meta_path.append(GeneratedModules({tree!r}, {kept!r}))\n")
        with open(module + ".pth", "w") as file:
            file.write("import agent_fix_generated")


if __name__ == "__main__":
    main(*sys.argv[1:])
