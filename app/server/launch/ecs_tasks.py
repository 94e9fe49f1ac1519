"""Starts each job as an ECS task, made from the operator's RunTask request (`aws ecs run-task --cli-input-json`)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

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
"""The container of the task definition in which `agent-fix` works."""
STARTED_BY = "agent-fix"
PER_CALL = 100
"""How many tasks ECS describes in one call."""
_PENDING = frozenset({"PROVISIONING", "PENDING", "ACTIVATING"})
_DISPLACED = frozenset({"SpotInterruption", "TerminationNotice", "InfrastructureHealth"})


class EcsTasks:
    """The tasks in the request's cluster. Image, roles, secrets and resources are the task definition's."""

    owner = "ecs"

    def __init__(self, template: Path) -> None:
        self._path = template
        self._request = read_template(template)
        self._cluster = self._request.get("cluster", "default")
        self._tasks: dict[str, JobClaim] = {}
        """The claim of each task that has not ended, by the task's ARN."""
        try:
            self._client = boto3.client("ecs", config=Config(retries={"mode": "standard"}, read_timeout=30))
        except BotoCoreError as error:
            raise invalid(template, f"{error}") from error

    def check(self) -> None:
        name = self._request.get("taskDefinition")
        if not isinstance(name, str):
            raise invalid(self._path, "taskDefinition is missing.")
        with _refusals():
            try:
                found = self._client.describe_task_definition(taskDefinition=name)["taskDefinition"]
            except (ParamValidationError, self._client.exceptions.ClientException) as error:
                raise invalid(self._path, f"{error}") from error
        if CONTAINER not in {each["name"] for each in found["containerDefinitions"]}:
            raise invalid(self._path, f"the task definition {name} has no container named {CONTAINER!r}.")
        self._find()

    def create(self, claim: JobClaim) -> None:
        request = copy.deepcopy(self._request)
        overrides = request.setdefault("overrides", {}).setdefault("containerOverrides", [])
        ours = next((each for each in overrides if each.get("name") == CONTAINER), None)
        if ours is None:
            overrides.append(ours := {"name": CONTAINER})
        ours["command"] = job_arguments(claim)
        tags = [{"key": key, "value": value} for key, value in labels_of(claim).items()]
        request |= {
            "count": 1,
            "startedBy": STARTED_BY,
            "clientToken": f"{claim.job}-{claim.epoch}",  # the same request again starts no second task
            "tags": [*request.get("tags", ()), *tags],
        }
        with _refusals():
            answer = self._client.run_task(**request)
        if not answer["tasks"]:
            why = ", ".join(each.get("reason", "") for each in answer["failures"])
            raise LaunchError(f"ECS did not start the task: {why}.")
        self._tasks[answer["tasks"][0]["taskArn"]] = claim

    def jobs(self) -> list[ClusterJob]:
        found = []
        for task in self._described(list(self._tasks)):
            job = job_state(self._tasks[task["taskArn"]], task)
            found.append(job)
            if job.phase == "ended":
                del self._tasks[task["taskArn"]]
        return found

    def remove(self, claim: JobClaim, *, grace: int) -> None:
        """End the task after the `stopTimeout` of its definition, because ECS has no other grace."""
        for arn in [arn for arn, each in self._tasks.items() if each == claim]:
            with _refusals():
                self._client.stop_task(cluster=self._cluster, task=arn, reason="agent-fix ended the job")

    def _find(self) -> None:
        """Tasks that an earlier worker started."""
        with _refusals():
            pages = self._client.get_paginator("list_tasks").paginate(cluster=self._cluster, startedBy=STARTED_BY)
            arns = [arn for page in pages for arn in page["taskArns"]]
        for task in self._described(arns):
            claim = claim_of({tag["key"]: tag["value"] for tag in task.get("tags", ())}, self.owner)
            if claim is not None:
                self._tasks[task["taskArn"]] = claim

    def _described(self, arns: list[str]) -> Iterator[dict[str, Any]]:
        for start in range(0, len(arns), PER_CALL):
            with _refusals():
                answer = self._client.describe_tasks(
                    cluster=self._cluster, tasks=arns[start : start + PER_CALL], include=["TAGS"]
                )
            yield from answer["tasks"]


def job_state(claim: JobClaim, task: dict[str, Any]) -> ClusterJob:
    status = task["lastStatus"]
    if status in _PENDING:
        return ClusterJob(claim, "pending", reason=status)
    if status != "STOPPED":
        return ClusterJob(claim, "running")
    codes = [each["exitCode"] for each in task["containers"] if each["name"] == CONTAINER and "exitCode" in each]
    displaced = task.get("stopCode") in _DISPLACED
    return ClusterJob(
        claim, "ended", codes[0] if codes else None, displaced=displaced, reason=task.get("stoppedReason", "")
    )


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the client's errors into LaunchError."""
    try:
        yield
    except ClientError as error:
        raise LaunchError(f"ECS refused it: {error.response['Error'].get('Message') or error}") from error
    except BotoCoreError as error:
        raise LaunchError(f"ECS did not answer ({type(error).__name__}: {error}).") from error
