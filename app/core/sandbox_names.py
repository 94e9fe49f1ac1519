"""The kinds of sandbox by the names users choose, each with a short description."""

SANDBOXES = {
    "bubblewrap": "on this machine, Linux",
    "docker": "in a container of Docker",
    "podman": "in a container of Podman",
    "e2b": "in E2B's cloud",
    "none": "no isolation",
}
DEFAULT = "bubblewrap"


def described() -> str:
    return "; ".join(f"{name}: {words}" for name, words in SANDBOXES.items())
