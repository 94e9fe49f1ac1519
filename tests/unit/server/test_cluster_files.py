"""The files of `deploy/` for jobs in clusters: what they say of our own tables, arguments and variables."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from app.config.roles import ALLOWED_VARIABLES
from app.config.settings import Settings
from app.jobs.queue import QueueLimits
from app.server.context import ServerContext
from tests.support.databases import fresh_postgres
from tests.support.installed_programs import ROOT, tool
from tests.support.server_jobs import issue_ref, job, job_context, trigger

JOBS = ROOT / "deploy" / "kubernetes-jobs"
KEDA = ROOT / "deploy" / "keda" / "scaled-object.yaml"
PATCHES = ("receiver.yaml", "worker.yaml")
PUBLISHED = ROOT / ".cache" / "kubernetes" / "keda"
MANIFESTS = sorted(path for path in JOBS.glob("*.yaml") if path.name not in {"kustomization.yaml", *PATCHES})


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_manifests_keep_their_schemas(path: Path) -> None:
    done = tool("kubernetes-validate", "--strict", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pod_of_a_job_is_as_confined_as_the_worker_and_holds_its_secret_only() -> None:
    template = yaml.safe_load((JOBS / "job.yaml").read_text("utf-8"))
    worker = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "worker.yaml").read_text("utf-8"))
    pod, other = template["spec"]["template"]["spec"], worker["spec"]["template"]["spec"]
    (container,), (of_worker,) = pod["containers"], other["containers"]
    assert container["name"] == "job"
    assert container["envFrom"] == of_worker["envFrom"] == [{"secretRef": {"name": "worker"}}]
    assert container["securityContext"] == of_worker["securityContext"]
    assert container["volumeMounts"] == of_worker["volumeMounts"]
    assert (pod["securityContext"], pod["hostUsers"]) == (other["securityContext"], other["hostUsers"])
    assert pod["automountServiceAccountToken"] is False
    assert not [volume for volume in pod["volumes"] if set(volume) != {"name", "emptyDir"}]


def test_the_worker_may_only_start_list_and_remove_jobs() -> None:
    documents = yaml.safe_load_all((JOBS / "access.yaml").read_text("utf-8"))
    (role,) = [each for each in documents if each["kind"] == "Role"]
    rights = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == {
        ("jobs", "create"),
        ("jobs", "list"),
        ("jobs", "delete"),
        ("pods", "list"),
        ("pods", "deletecollection"),
    }


def test_the_task_definition_holds_what_a_worker_may_hold() -> None:
    definition = json.loads((ROOT / "deploy" / "ecs" / "job.task-definition.json").read_text("utf-8"))
    (container,) = definition["containerDefinitions"]
    names = {each["name"] for each in (*container["environment"], *container["secrets"])}
    assert {name for name in names if name.startswith("AGENT_FIX_")} <= ALLOWED_VARIABLES["worker"]
    assert {each["name"] for each in container["secrets"]} == {
        "AGENT_FIX_DATABASE_URL",
        "ANTHROPIC_API_KEY",
        "E2B_API_KEY",
    }
    request = json.loads((ROOT / "deploy" / "ecs" / "run-task.json").read_text("utf-8"))
    assert request["taskDefinition"] == definition["family"]


def test_the_workers_policy_allows_its_tasks_to_be_tagged() -> None:
    """RunTask with tags needs TagResource, whose request names no cluster."""
    policy = json.loads((ROOT / "deploy" / "ecs" / "worker.policy.json").read_text("utf-8"))
    (tagging,) = [each for each in policy["Statement"] if "ecs:TagResource" in each["Action"]]
    assert tagging["Action"] == "ecs:TagResource"
    assert tagging["Condition"] == {"StringEquals": {"ecs:CreateAction": "RunTask"}}


def _environment(path: Path) -> dict[str, str]:
    (container,) = yaml.safe_load(path.read_text("utf-8"))["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.mark.parametrize("place", [JOBS, KEDA.parent], ids=lambda path: path.name)
def test_receiver_and_worker_have_the_same_limit_of_jobs(place: Path) -> None:
    listed = yaml.safe_load((place / "kustomization.yaml").read_text("utf-8"))["patches"]
    assert [each["path"] for each in listed] == list(PATCHES)
    limits = {name: _environment(place / name)["AGENT_FIX_JOBS"] for name in PATCHES}
    assert limits["receiver.yaml"] == limits["worker.yaml"]


def test_kedas_workers_can_take_as_many_jobs_as_the_limit_says() -> None:
    workers = next(yaml.safe_load_all(KEDA.read_text("utf-8")))["spec"]["maxReplicaCount"]
    worker = _environment(KEDA.with_name("worker.yaml"))
    assert workers * int(worker["AGENT_FIX_JOBS_PER_WORKER"]) == int(worker["AGENT_FIX_JOBS"])


def _strict(schema: Any) -> Any:
    """The schema with every object closed that lists its properties, as the API server's strict validation has it."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _strict(value) for key, value in schema.items()}
    listed = isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema
    return {**inner, "additionalProperties": False} if listed else inner


def _keda_problems(document: Any) -> list[str]:
    path = PUBLISHED / f"keda.sh_{document['kind'].lower()}s.yaml"
    if not path.exists():
        pytest.skip("KEDA's schemas were NOT CHECKED: they are missing (`make kubernetes-tools`)")
    (version,) = yaml.safe_load(path.read_text("utf-8"))["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"].pop("metadata")
    checked = {key: value for key, value in document.items() if key != "metadata"}
    return [error.message for error in Draft202012Validator(_strict(schema)).iter_errors(checked)]


def test_keda_manifests_match_kedas_published_schemas() -> None:
    documents = list(yaml.safe_load_all(KEDA.read_text("utf-8")))
    assert [each["kind"] for each in documents] == ["ScaledObject", "TriggerAuthentication"]
    assert [_keda_problems(each) for each in documents] == [[], []]
    documents[0]["spec"]["scaleTargetReference"] = documents[0]["spec"].pop("scaleTargetRef")
    assert len(_keda_problems(documents[0])) == 2, "one that is missing and one that is unknown"


def test_keda_counts_the_jobs_that_want_a_worker_or_have_one(tmp_path: Path) -> None:
    (query,) = [
        trigger["metadata"]["query"]
        for document in yaml.safe_load_all(KEDA.read_text("utf-8"))
        for trigger in document["spec"].get("triggers", ())
    ]
    server = ServerContext(Settings(state=tmp_path, database_url=fresh_postgres()), lambda: datetime.now(UTC))
    server.prepare()

    def count() -> int:
        with server.engine.connect() as db:
            found = db.execute(sa.text(query)).scalar_one()
            assert isinstance(found, int)
            return found

    assert count() == 0
    for number in range(5):
        where = issue_ref(number + 1)
        name = f"j{number}"
        server.queue.admit(job(name, where), job_context(where), trigger(name, where), ready=number != 4)
    assert count() == 4, "one has no base yet"
    claim = server.queue.claim("here", QueueLimits(jobs=9, per_repository=9))
    assert claim is not None
    assert count() == 4, "one is in progress"
    server.queue.hand_over(claim, {})
    assert count() == 3
    server.job_store().enter("j1", "paused")
    server.queue.stop("j2", "asked")
    assert count() == 1
    claim = server.queue.claim("here", QueueLimits(jobs=9, per_repository=9))
    assert claim is not None
    server.queue.stop(claim.job, "asked")
    assert count() == 0, "one in progress that is to stop needs no worker more"
    server.engine.dispose()
