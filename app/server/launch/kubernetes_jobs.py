"""Starts each job as a Kubernetes Job with one pod, made from the operator's manifest."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from app.core.errors import AgentFixError, ExitCode
from app.jobs.queue import JobClaim
from app.server.launch.base import (
    ClusterJob,
    LaunchError,
    claim_of,
    invalid,
    job_arguments,
    labels_of,
    read_template,
)

CONTAINER = "job"
"""The container of the manifest in which `agent-fix` works; others are the operator's own."""
MANAGED_BY = "app.kubernetes.io/managed-by"
KEPT_SECONDS = 300
"""How long an ended Job stays for people to look at, unless the manifest says otherwise."""
_TIMEOUT = (5.0, 30.0)
_INVALID = frozenset({400, 404, 422})
"""Answers to a manifest that no later attempt would change."""


class KubernetesJobs:
    """The Jobs in the manifest's namespace. Retries are ours: Kubernetes starts each pod once."""

    owner = "kubernetes"

    def __init__(self, template: Path, kubeconfig: str = "") -> None:
        self._path = template
        self._template = read_template(template)
        self._namespace = (self._template.get("metadata") or {}).get("namespace") or "default"
        api_client = _connect(kubeconfig)
        self._batch = client.BatchV1Api(api_client)
        self._core = client.CoreV1Api(api_client)

    def check(self) -> None:
        probe = self._manifest(JobClaim("check", 0, self.owner, resumed=False))
        with _refusals():
            try:
                self._batch.create_namespaced_job(self._namespace, probe, dry_run="All", _request_timeout=_TIMEOUT)
            except ApiException as error:
                if error.status in _INVALID:
                    raise invalid(self._path, _message(error)) from error
                raise

    def create(self, claim: JobClaim) -> None:
        with _refusals():
            try:
                self._batch.create_namespaced_job(self._namespace, self._manifest(claim), _request_timeout=_TIMEOUT)
            except ApiException as error:
                if error.status != 409:  # it is there already
                    raise

    def jobs(self) -> list[ClusterJob]:
        chosen = {"label_selector": f"{MANAGED_BY}=agent-fix", "_preload_content": False, "_request_timeout": _TIMEOUT}
        with _refusals():
            # Jobs first: the pod of a listed Job may end meanwhile, but none can be missing that was there.
            jobs = json.loads(self._batch.list_namespaced_job(self._namespace, **chosen).data)["items"]
            pods = json.loads(self._core.list_namespaced_pod(self._namespace, **chosen).data)["items"]
        pods_by_claim = {claim_of(pod["metadata"]["labels"], self.owner): pod for pod in pods}
        claims = ((claim_of(job["metadata"]["labels"], self.owner), job) for job in jobs)
        return [job_state(claim, job, pods_by_claim.get(claim)) for claim, job in claims if claim is not None]

    def remove(self, claim: JobClaim, *, grace: int) -> None:
        with _refusals():
            try:
                self._batch.delete_namespaced_job(
                    _name(claim),
                    self._namespace,
                    grace_period_seconds=grace,
                    propagation_policy="Background",
                    _request_timeout=_TIMEOUT,
                )
                self._core.delete_collection_namespaced_pod(
                    self._namespace,
                    grace_period_seconds=grace,
                    label_selector=",".join(f"{name}={value}" for name, value in labels_of(claim).items()),
                    _request_timeout=_TIMEOUT,
                )
            except ApiException as error:
                if error.status != 404:
                    raise

    def _manifest(self, claim: JobClaim) -> dict[str, Any]:
        """The operator's manifest with this job's name, labels and arguments, and with no retries."""
        manifest = copy.deepcopy(self._template)
        try:
            spec = manifest["spec"]
            pod = spec["template"]
            (container,) = (each for each in pod["spec"]["containers"] if each["name"] == CONTAINER)
        except (KeyError, TypeError, ValueError):
            raise invalid(self._path, f"it is not a Job with one container named {CONTAINER!r}.") from None
        labels = {MANAGED_BY: "agent-fix", **labels_of(claim)}
        for part in (manifest, pod):
            part.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
        manifest["metadata"] |= {"name": _name(claim), "namespace": self._namespace}
        spec |= {"parallelism": 1, "completions": 1, "backoffLimit": 0}
        spec.setdefault("ttlSecondsAfterFinished", KEPT_SECONDS)
        pod["spec"]["restartPolicy"] = "Never"
        container["args"] = job_arguments(claim)
        return manifest


def _name(claim: JobClaim) -> str:
    return f"agent-fix-{claim.job.lower()}-{claim.epoch}"


def job_state(claim: JobClaim, job: dict[str, Any], pod: dict[str, Any] | None) -> ClusterJob:
    """The state of a Job by its pod's status; by its own if there is no pod."""
    ended = [each for each in job["status"].get("conditions", ()) if each["type"] in {"Complete", "Failed"}]
    if pod is None:
        why = ended[-1] if ended else {}
        reason = f"{why.get('reason', '')} {why.get('message', '')}".strip()
        return ClusterJob(claim, "ended" if ended else "pending", reason=reason)
    status = pod["status"]
    states = [each["state"] for each in status.get("containerStatuses", ()) if each["name"] == CONTAINER]
    state = states[0] if states else {}
    conditions = {each["type"]: each for each in status.get("conditions", ()) if each["status"] == "True"}
    if status.get("phase") in {"Succeeded", "Failed"} or ended:
        terminated = state.get("terminated", {})
        displaced = conditions.get("DisruptionTarget", {})
        reason = displaced.get("message") or terminated.get("reason") or status.get("reason", "")
        return ClusterJob(claim, "ended", terminated.get("exitCode"), displaced=bool(displaced), reason=reason)
    if status.get("phase") == "Pending":
        return ClusterJob(claim, "pending", reason=_pending_reason(status, state))
    return ClusterJob(claim, "running")


def _pending_reason(status: dict[str, Any], state: dict[str, Any]) -> str:
    waiting = state.get("waiting", {})
    unscheduled = [each for each in status.get("conditions", ()) if each["status"] == "False" and each.get("message")]
    why = waiting if waiting.get("message") or not unscheduled else unscheduled[0]
    return f"{why.get('reason', '')} {why.get('message', '')}".strip()


def _connect(kubeconfig: str) -> client.ApiClient:
    """The API of the kubeconfig, or of the cluster that this process runs in."""
    try:
        if kubeconfig:
            return config.new_client_from_config(config_file=kubeconfig)
        configuration = client.Configuration()
        config.load_incluster_config(client_configuration=configuration)
        return client.ApiClient(configuration)
    except config.ConfigException as error:
        raise AgentFixError(
            f"The Kubernetes API cannot be used: {error}.",
            code=ExitCode.CONFIG,
            hint="Run the worker in the cluster with a service account, or set KUBECONFIG.",
        ) from error


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the client's errors into LaunchError."""
    try:
        yield
    except ApiException as error:
        raise LaunchError(f"Kubernetes refused it: {_message(error)}") from error
    except HTTPError as error:
        raise LaunchError(f"Kubernetes did not answer ({type(error).__name__}).") from error


def _message(error: ApiException) -> str:
    """The API server's own words, without headers."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
