"""Judges each property from what was observed inside a sandbox; pure functions, so that every failure can be tested."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.sandbox.base import DoctorCheck
from app.sandbox.bubblewrap.repair import PROPERTY_REPAIR

ProbeFacts = Mapping[str, Any]
REFUSALS = frozenset({"EPERM", "ENOSYS"})
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def check(name: str, ok: bool, detail: str) -> DoctorCheck:
    return DoctorCheck(name, ok=ok, detail=detail, repair="" if ok else PROPERTY_REPAIR.get(name, PROPERTY_REPAIR[""]))


def judge_essential(text: str) -> tuple[DoctorCheck, ...]:
    """From the script's output. A missing line counts against the property."""
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    found: dict[str, list[str]] = {}
    for name, *value in lines:
        found.setdefault(name.rstrip(":"), []).append(value[0] if value else "")
    status = {name: values[0] for name, values in found.items()}
    return (
        *judge_status(status, uid=int((status.get("Uid") or "0").split()[0])),
        check("network", found.get("Interface") == ["lo"], f"interfaces: {', '.join(found.get('Interface', []))}"),
        check("read-only system", "Written" not in found, f"written: {', '.join(found.get('Written', ['nothing']))}"),
        check("host files", "Read" not in found, f"read: {', '.join(found.get('Read', ['nothing']))}"),
        check("work tree", "Tree" in found, "writable" if "Tree" in found else "the work tree is not writable"),
    )


def judge_status(status: Mapping[str, str], *, uid: int) -> tuple[DoctorCheck, ...]:
    """From /proc/self/status inside."""
    sets = {name: status.get(name, "missing") for name in CAPABILITY_SETS}
    held = {name: value for name, value in sets.items() if value.strip("0")}
    return (
        check("identity", uid != 0, f"uid {uid}"),
        check("capabilities", not held, ", ".join(f"{name} {value}" for name, value in held.items()) or "none"),
        check("no new privileges", status.get("NoNewPrivs") == "1", f"NoNewPrivs {status.get('NoNewPrivs')}"),
        check("system call filter", status.get("Seccomp") == "2", f"Seccomp {status.get('Seccomp')}"),
    )


def judge_reach(facts: ProbeFacts, connections: Sequence[str], variables: frozenset[str]) -> tuple[DoctorCheck, ...]:
    """From the attacking program's report and what the listeners outside received."""
    reached = [*facts["reached"], *(f"{name}, as seen from outside" for name in connections)]
    open_calls = [f"{name} ({answer})" for name, answer in facts["answers"].items() if answer not in REFUSALS]
    foreign = sorted(set(facts["environment"]) - variables)
    # The kernel accepts a datagram to its own loopback and sends it nowhere, so there the listener decides.
    connected = [name for name in reached if name != "udp"]
    return (
        *judge_status(facts["status"], uid=facts["uid"]),
        check("system calls", not open_calls, "refused" if not open_calls else f"answered: {', '.join(open_calls)}"),
        check("user namespaces", not facts["user_namespace"], "made" if facts["user_namespace"] else "refused"),
        check("network", not connected and facts["interfaces"] == ["lo"], _list_names("reached", connected)),
        check("host files", not facts["read"], _list_names("read", facts["read"])),
        check("read-only system", not facts["written"], _list_names("written", facts["written"])),
        check("environment", not foreign, _list_names("foreign variables", foreign)),
    )


def _list_names(what: str, names: Sequence[str]) -> str:
    return f"{what}: {', '.join(names)}" if names else f"{what}: nothing"
