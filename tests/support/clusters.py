"""Clusters for whole servers: a real Kubernetes API and an ECS in memory, each with processes in the place of pods."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.support.ecs.fargate import Fargate, fargate
from tests.support.installed_programs import ROOT
from tests.support.kubernetes.control_plane import ControlPlane, program
from tests.support.kubernetes.node import Node

NAMESPACE = "agent-fix-work"
IMAGE_VARIABLES = frozenset({"PATH", "HOME", "AGENT_FIX_STATE_DIR"})


class ClusterUnderTest(Protocol):
    """What a test does with a cluster, whichever it is."""

    hold: threading.Event
    """While set, nothing that is started begins."""
    environments: list[dict[str, str]]
    """Of every job's process."""
    log: Path

    @property
    def worker(self) -> Mapping[str, str]:
        """What the worker's environment needs in addition."""

    @property
    def listed(self) -> list[str]:
        """Pods or tasks that have not ended."""

    @property
    def started(self) -> list[str]:
        """Those whose process is there."""

    def kill(self, name: str) -> None:
        """The process dies by itself."""

    def delete(self, name: str) -> None:
        """A person deletes it."""

    def displace(self, name: str) -> None:
        """The cluster takes the machine away."""


class KubernetesUnderTest:
    """`deploy/kubernetes-jobs` in a real API server, used with the rights of its service account."""

    def __init__(self, plane: ControlPlane, node: Node) -> None:
        from kubernetes import client

        self._core = client.CoreV1Api(plane.client())
        self._node = node
        token = self._core.create_namespaced_service_account_token(
            "worker", NAMESPACE, {"spec": {"expirationSeconds": 3600}}
        ).status.token
        self.hold, self.environments, self.log = node.hold, node.environments, node.log
        self.worker = {
            "AGENT_FIX_JOBS_RUN_ON": "kubernetes",
            "AGENT_FIX_JOBS_TEMPLATE": str(ROOT / "deploy" / "kubernetes-jobs" / "job.yaml"),
            "KUBECONFIG": str(plane.kubeconfig("worker", token)),
        }

    @property
    def listed(self) -> list[str]:
        pods = json.loads(self._core.list_namespaced_pod(NAMESPACE, _preload_content=False).data)["items"]
        return [each["metadata"]["name"] for each in pods if each["status"]["phase"] in {"Pending", "Running"}]

    @property
    def started(self) -> list[str]:
        return list(self._node.pods)

    def kill(self, name: str) -> None:
        self._node.kill(name)

    def delete(self, name: str) -> None:
        self._core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)

    def displace(self, name: str) -> None:
        eviction = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 1}}
        self._core.create_namespaced_pod_eviction(name, NAMESPACE, eviction, _preload_content=False)


class EcsUnderTest:
    """`deploy/ecs` in moto."""

    def __init__(self, fargate: Fargate, place: Path) -> None:
        self._fargate = fargate
        request = json.loads((ROOT / "deploy" / "ecs" / "run-task.json").read_text("utf-8"))
        request["networkConfiguration"]["awsvpcConfiguration"] |= {
            "subnets": [fargate.subnet],
            "securityGroups": [fargate.security_group],
        }
        template = place / "run-task.json"
        template.write_text(json.dumps(request))
        self.hold, self.environments, self.log = fargate.hold, fargate.environments, fargate.log
        self.worker = {
            "AGENT_FIX_JOBS_RUN_ON": "ecs",
            "AGENT_FIX_JOBS_TEMPLATE": str(template),
            **fargate.environment,
        }

    @property
    def listed(self) -> list[str]:
        # ECS lists only these when it is not told which; moto lists the stopped ones as well.
        found: list[str] = self._fargate.client.list_tasks(cluster="agent-fix", desiredStatus="RUNNING")["taskArns"]
        return found

    @property
    def started(self) -> list[str]:
        return [arn for arn, process in self._fargate.processes.items() if process.poll() is None]

    def kill(self, name: str) -> None:
        self._fargate.kill(name)

    def delete(self, name: str) -> None:
        self._fargate.client.stop_task(cluster="agent-fix", task=name)

    def displace(self, name: str) -> None:
        self._fargate.displace(name)


def secret_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a worker's environment that is in its secret."""
    return {name: value for name, value in environment.items() if name not in IMAGE_VARIABLES}


def apply_manifests(plane: ControlPlane) -> None:
    kubectl(plane, "apply", "-k", str(ROOT / "deploy" / "kubernetes-jobs"))


def kubectl(plane: ControlPlane, *words: str) -> str:
    command = [program("kubectl"), f"--kubeconfig={plane.kubeconfig('admin', plane.token)}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def kubernetes_cluster(plane: ControlPlane, place: Path, secret: Mapping[str, str]) -> Iterator[KubernetesUnderTest]:
    from kubernetes import client

    api = plane.client()
    core = client.CoreV1Api(api)
    body = {"metadata": {"name": "worker"}, "stringData": dict(secret)}
    core.create_namespaced_secret(NAMESPACE, body)
    try:
        with Node(plane, NAMESPACE, place / "node") as node:
            try:
                yield KubernetesUnderTest(plane, node)
            finally:
                jobs = client.BatchV1Api(api)
                jobs.delete_collection_namespaced_job(
                    NAMESPACE, propagation_policy="Background", grace_period_seconds=0
                )
                core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    finally:
        core.delete_namespaced_secret("worker", NAMESPACE)
        core.delete_node("node-1")


@contextmanager
def ecs_cluster(place: Path, secret: Mapping[str, str]) -> Iterator[EcsUnderTest]:
    definition: dict[str, Any] = json.loads((ROOT / "deploy" / "ecs" / "job.task-definition.json").read_text("utf-8"))
    (container,) = definition["containerDefinitions"]
    container["environment"] = []
    container["secrets"] = [{"name": name, "valueFrom": f"arn:aws:ssm:::parameter/{name}"} for name in secret]
    with fargate(place / "fargate") as found:
        found.define(definition, secret)
        yield EcsUnderTest(found, place)
