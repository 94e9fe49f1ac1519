"""Compose and Kubernetes: each role with what it may hold and no more, in containers without rights."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.roles import ALLOWED_VARIABLES, REQUIRED_VARIABLES, ROLES, Role
from tests.support.installed_programs import ROOT, tool

KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml")


# Compose


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def test_the_compose_file_is_one() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def example(role: Role) -> dict[str, str]:
    text = (ROOT / "deploy" / "env" / f"{role}.env.example").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_given_what_it_needs_and_may_hold(compose: dict[str, Any], role: Role) -> None:
    service = compose["services"][role]
    assert service["command"] == ["serve", "--role", role]
    assert service["env_file"] == [f"deploy/env/{role}.env"]
    given = {*example(role), *service["environment"]}
    assert {name for name in given if name.startswith("AGENT_FIX_")} <= ALLOWED_VARIABLES[role]
    assert set(REQUIRED_VARIABLES[role]) <= given
    assert [name for name in given if not name.startswith("AGENT_FIX_")] == (
        ["ANTHROPIC_API_KEY"] if role == "worker" else []
    )
    assert service.get("secrets", []) == (["app_key"] if role == "publisher" else [])


@pytest.mark.parametrize("role", ROLES)
def test_no_container_is_privileged(compose: dict[str, Any], role: Role) -> None:
    service = compose["services"][role]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert not {"privileged", "cap_add", "user", "devices", "pid", "network_mode"} & set(service)
    assert "no-new-privileges:true" in service["security_opt"]
    loosened = [word for word in service["security_opt"] if word != "no-new-privileges:true"]
    worker = ["seccomp=deploy/seccomp.json", "apparmor=unconfined", "systempaths=unconfined"]
    assert loosened == (worker if role == "worker" else [])


def test_the_database_is_reached_by_the_roles_alone(compose: dict[str, Any]) -> None:
    assert compose["networks"]["inside"] == {"internal": True}
    assert compose["services"]["database"]["networks"] == ["inside"]
    assert "ports" not in compose["services"]["database"]
    assert [name for name, service in compose["services"].items() if "ports" in service] == ["receiver"]
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["receiver"]["ports"])


def test_no_secret_can_be_committed_where_the_examples_stand() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "deploy/env/worker.env", "deploy/env/app.pem", ".env"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ignored.returncode == 128:
        pytest.skip("not a checkout")
    assert len(ignored.stdout.split()) == 3
    harmless = {"", "5", "172.16.0.0/12"}  # a budget, and Docker's own networks
    assert {value for role in ROLES for value in example(role).values()} <= harmless


# Kubernetes


def manifests(kind: str) -> list[dict[str, Any]]:
    found = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text("utf-8"))]
    return [each for each in found if each["kind"] == kind]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_manifests_keep_their_schemas(path: Path) -> None:
    done = tool("kubernetes-validate", "--strict", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_manifest_is_applied() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert sorted(listed) == [path.name for path in MANIFESTS]


@pytest.mark.parametrize("role", ROLES)
def test_pods_are_as_confined_as_their_work_lets_them(role: Role) -> None:
    (deployment,) = [each for each in manifests("Deployment") if each["metadata"]["name"] == role]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["serve", "--role", role]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert set(container["resources"]) == {"requests", "limits"}
    assert pod["terminationGracePeriodSeconds"] > 10
    loosened = {"hostUsers", "procMount"} & {*pod, *own}
    assert loosened == ({"hostUsers", "procMount"} if role == "worker" else set())
    kinds = {"worker": "Localhost"}
    assert pod["securityContext"]["seccompProfile"]["type"] == kinds.get(role, "RuntimeDefault")


def test_secrets_are_apart() -> None:
    """No pod can mount what lies in another namespace."""
    places = {each["metadata"]["name"]: each["metadata"]["namespace"] for each in manifests("Deployment")}
    assert places == {"receiver": "agent-fix", "publisher": "agent-fix", "worker": "agent-fix-work"}
    for each in manifests("Deployment"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": each["metadata"]["name"]}}]
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in manifests("Namespace")
    }
    assert levels == {"agent-fix": "restricted", "agent-fix-work": "privileged"}


def test_probes_ask_what_restarting_can_mend() -> None:
    (deployment,) = [each for each in manifests("Deployment") if each["metadata"]["name"] == "receiver"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["startupProbe"]["httpGet"]["path"] == "/readyz"


def test_nothing_comes_in_and_little_goes_out() -> None:
    policies = manifests("NetworkPolicy")
    closed = [each for each in policies if each["spec"]["podSelector"] == {}]
    assert {each["metadata"]["namespace"] for each in closed} == {"agent-fix", "agent-fix-work"}
    assert all(each["spec"]["policyTypes"] == ["Ingress", "Egress"] and len(each["spec"]) == 2 for each in closed)
    assert [each["metadata"]["name"] for each in policies if "ingress" in each["spec"]] == ["receiver"]
    blocks = [
        to["ipBlock"] for each in policies for rule in each["spec"].get("egress", ()) for to in rule.get("to", ())
    ]
    assert blocks
    assert all(block["except"] for block in blocks), "the cloud's metadata addresses hand out credentials"
