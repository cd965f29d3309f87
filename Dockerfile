# syntax=docker/dockerfile:1
#
# The three images, one target each:
#
#   docker build --target controller -t agent-sandbox-controller .
#   docker build --target router     -t sandbox-router .
#   docker build --target runtime    -t sandbox-runtime .
#
# Every RUN is on the build platform, so that images of other architectures need no emulation.

ARG GO=golang:1.26-trixie
ARG PYTHON=python:3.13-slim-trixie

FROM --platform=$BUILDPLATFORM ${GO} AS build
ENV GOMODCACHE=/cache/mod GOCACHE=/cache/build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/cache go mod download
COPY proto proto
COPY router router
COPY controller controller
COPY runtime runtime
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG REVISION
ARG CREATED
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.gitVersion=$VERSION -X main.gitCommit=$REVISION -X main.buildDate=$CREATED" \
    -o /out/ ./router ./controller ./runtime

# The user of the sandboxes, 1000 as in the chart, and the directory of their files, which another user may write to as well.
FROM --platform=$BUILDPLATFORM ${PYTHON} AS accounts
RUN useradd --uid 1000 --home-dir /app --no-create-home --shell /bin/bash sandbox && install --directory --mode=0777 /app

FROM scratch AS static
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65532:65532
ARG VERSION=dev
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.source="https://github.com/dovakiin0/agent-sandbox" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"

FROM static AS controller
LABEL org.opencontainers.image.title="agent-sandbox-controller" \
      org.opencontainers.image.description="Controller of Sandboxes, SandboxTemplates, SandboxWarmPools and SandboxClaims"
COPY --from=build /out/controller /agent-sandbox-controller
EXPOSE 8080 8081
ENTRYPOINT ["/agent-sandbox-controller"]

FROM static AS router
LABEL org.opencontainers.image.title="sandbox-router" \
      org.opencontainers.image.description="Carries HTTP and WebSocket traffic to sandboxes by their id"
COPY --from=build /out/router /sandbox-router
EXPOSE 8080 8081 8443 9090
ENTRYPOINT ["/sandbox-router"]

# Debian with Python 3 and Bash, and the server that runs commands with them.
FROM ${PYTHON} AS runtime
ARG VERSION=dev
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="sandbox-runtime" \
      org.opencontainers.image.description="Python 3 and Bash in a sandbox: runs commands, keeps files, serves interactive sessions" \
      org.opencontainers.image.source="https://github.com/dovakiin0/agent-sandbox" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
COPY --from=accounts /etc/passwd /etc/group /etc/
COPY --from=accounts --chown=1000:1000 /app /app
COPY --from=build /out/runtime /usr/local/bin/sandbox-runtime
ENV HOME=/app PYTHONUNBUFFERED=1
WORKDIR /app
USER 1000:1000
EXPOSE 8888
ENTRYPOINT ["/usr/local/bin/sandbox-runtime"]
