"""Builds a cloud sandbox's network policy, and compares it with what the cloud reports.

Nothing is reachable except a set-up's hosts while it runs. E2B's own defaults are open and an update clears what it
leaves out, so each policy names everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from e2b.sandbox.sandbox_api import SandboxNetworkOpts, SandboxNetworkUpdate

from app.core.errors import SetupError
from app.sandbox.egress.allow_list import address_of, is_internal_name, parse_rule

EVERYTHING = "0.0.0.0/0"
_DEFAULT_DNS = ["8.8.8.8"]
"""The name server while hosts are allowed; E2B may or may not report it."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Only `hosts` are reachable; nobody from outside reaches the sandbox without its token."""

    hosts: tuple[str, ...] = ()

    def at_creation(self) -> SandboxNetworkOpts:
        return {"allow_out": list(self.hosts), "deny_out": [EVERYTHING], "allow_public_traffic": False}

    def as_update(self) -> SandboxNetworkUpdate:
        return {"allow_out": list(self.hosts), "deny_out": [EVERYTHING], "rules": {}}

    def difference(self, internet: bool | None, network: Mapping[str, object]) -> str:
        """How the cloud's report differs from the policy; empty if it does not."""
        reported = {name: value for name, value in network.items() if value not in (None, [], {}, "")}
        reported.setdefault("allow_out", [])
        wanted: dict[str, object] = {
            "allow_out": list(self.hosts),
            "deny_out": [EVERYTHING],
            "allow_public_traffic": False,
        }
        if reported.get("dns_servers") == _DEFAULT_DNS:
            del reported["dns_servers"]
        if internet and not self.hosts:
            return "the internet is allowed"
        names = sorted(wanted.keys() | reported.keys())
        return "; ".join(
            f"{name} is {reported.get(name)!r}, not {wanted.get(name)!r}"
            for name in names
            if _canonical(reported.get(name)) != _canonical(wanted.get(name))
        )


CLOSED = NetworkPolicy()


def during_setup(entries: Iterable[str]) -> NetworkPolicy:
    """The policy for these hosts, from SetupPlan.hosts. Raises SetupError for one that only this machine reaches."""
    hosts = []
    for entry in entries:
        host = parse_rule(entry).host
        if address_of(host) is not None or is_internal_name(host):
            raise SetupError(
                f"The set-up needs {entry}, which is on this machine or its network; a cloud sandbox cannot reach it.",
                hint="Configure a public package index, or use --sandbox bubblewrap.",
            )
        hosts.append(host)
    return NetworkPolicy(tuple(dict.fromkeys(hosts)))


def _canonical(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, list) else value
