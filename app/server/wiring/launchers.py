"""Chooses where jobs run: the launcher that the settings name."""

from app.config.settings import Settings
from app.server.launch.base import ChildProcesses, JobLauncher


def make_launcher(settings: Settings) -> JobLauncher:
    """The launcher of `AGENT_FIX_JOBS_RUN_ON`. Raises AgentFixError if its template or its client cannot be used."""
    if settings.jobs_run_on == "process" or settings.jobs_template is None:
        return ChildProcesses(settings)
    from app.server.launch.cluster import ClusterLauncher  # noqa: PLC0415  # a cluster's client is imported if used

    if settings.jobs_run_on == "kubernetes":
        from app.server.launch.kubernetes_jobs import KubernetesJobs  # noqa: PLC0415

        return ClusterLauncher(KubernetesJobs(settings.jobs_template, settings.environment.get("KUBECONFIG", "")))
    from app.server.launch.ecs_tasks import EcsTasks  # noqa: PLC0415

    return ClusterLauncher(EcsTasks(settings.jobs_template))
