# One image for every role: `docker run IMAGE serve`, `… serve --role worker`, `… doctor`. See docs/how-to/deploy-in-containers.md.

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285 AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements/build.txt requirements/image.txt requirements/
# Wheels only, each by its hash: nothing is compiled, and nothing that was not locked runs here.
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes --only-binary :all: --requirement requirements/build.txt \
    && python -m venv --without-pip /opt/agent-fix \
    && /build/bin/pip --python /opt/agent-fix/bin/python install \
        --require-hashes --only-binary :all: --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY demo demo
COPY workflows/agent-fix.yml workflows/
RUN /build/bin/hatchling build --target wheel \
    && /build/bin/pip --python /opt/agent-fix/bin/python install --no-index --no-deps dist/*.whl

FROM python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
ARG VERSION=dev
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="agent-fix" \
      org.opencontainers.image.description="Label an issue, get a draft pull request with proof." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
# The base is fixed by its digest, which Dependabot keeps young; what is added to it is the distribution's newest at each build.
# GitPython ends git's helper programs at a time limit with `pgrep`, which is in procps.
# No program in the image may give its caller more rights than it has: the set-uid bits go.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && groupadd --gid 10001 agent-fix \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/agent-fix --create-home --shell /usr/sbin/nologin agent-fix
COPY --from=build /opt/agent-fix /opt/agent-fix
COPY deploy/health.py /opt/agent-fix/health.py
ENV PATH=/opt/agent-fix/bin:$PATH \
    AGENT_FIX_STATE_DIR=/var/lib/agent-fix \
    AGENT_FIX_HOST=0.0.0.0 \
    AGENT_FIX_PORT=8080 \
    AGENT_FIX_LOG=json
USER 10001:10001
WORKDIR /var/lib/agent-fix
VOLUME ["/var/lib/agent-fix"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-I", "/opt/agent-fix/health.py"]
# tini passes signals on, and buries what killed commands leave behind.
ENTRYPOINT ["tini", "--", "agent-fix"]
CMD ["serve"]
