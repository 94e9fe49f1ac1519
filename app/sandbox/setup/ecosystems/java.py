"""Java: Maven's plug-ins and dependencies are downloaded into `/env/m2`; later commands are offline."""

import re
import shlex
from collections.abc import Collection
from pathlib import PurePosixPath

from app.sandbox.base import ENV
from app.sandbox.setup.ecosystems.base import InstallStep, ManifestFiles, project_roots

JAVA_MANIFESTS = ("pom.xml", "maven.config", "extensions.xml", "jvm.config")
# MAVEN_OPTS, because mvn before 3.9 does not read MAVEN_ARGS.
JAVA_ENVIRONMENT = (("MAVEN_OPTS", f"-Dmaven.repo.local={ENV}/m2"),)
MIRROR = "AGENT_FIX_MAVEN_MIRROR"
"""The variable with the address of this machine's mirror."""
_TEST_CLASS = re.compile(r"(?:.*/)?src/test/java/(?:.*/)?(\w*Tests?)\.java")
# Maven reads no proxy from the usual variables. A mirror with the name of the public repository has its artifacts
# found offline, too.
_REACH = (
    'proxy="${HTTPS_PROXY#*://}"; proxy="${proxy%/}"; '
    'set -- ${proxy:+-Dhttps.proxyHost="${proxy%:*}" -Dhttps.proxyPort="${proxy##*:}"} '
    '${proxy:+-Dhttp.proxyHost="${proxy%:*}" -Dhttp.proxyPort="${proxy##*:}"}; '
    f'if [ -n "${MIRROR}" ]; then '
    'printf "<settings><mirrors><mirror><id>central</id><mirrorOf>*</mirrorOf><url>%s</url></mirror></mirrors>'
    f'</settings>" "${MIRROR}" > /tmp/settings.xml; set -- "$@" --settings /tmp/settings.xml; fi; '
)


def java_install_steps(files: ManifestFiles, tools: Collection[str]) -> list[InstallStep]:
    found = []
    for root in project_roots(files, ["pom.xml"]):
        if "mvn" not in tools:
            found.append(
                InstallStep("maven", notes=("the project needs Maven, which is not installed on this machine",))
            )
            continue
        inside = f"cd {shlex.quote(root)} && " if root else ""
        # What runs the tests is only resolved where there is one to run.
        only = f" -Dtest={smallest} -DfailIfNoTests=false" if (smallest := _smallest_test(files, root)) else ""
        skipped = "-Dsurefire.failIfNoSpecifiedTests=false -Dmaven.test.failure.ignore=true"
        command = f'{_REACH}{inside}mvn --batch-mode --quiet "$@" {skipped}{only} test'
        found.append(
            InstallStep(
                "maven",
                commands=(command,),
                tools=("mvn",),
                manifests=tuple(path for path in files if PurePosixPath(path).name in JAVA_MANIFESTS),
                environment=JAVA_ENVIRONMENT,
            )
        )
    return found


def _smallest_test(files: ManifestFiles, root: str) -> str:
    """The name of the shortest test class; empty if there is none."""
    found = (
        (files.entries[path].size, named[1])
        for path in files
        if path.startswith(root) and (named := _TEST_CLASS.fullmatch(path)) and not named[1].startswith("Abstract")
    )
    return min(found, default=(0, ""))[1]
