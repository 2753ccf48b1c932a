# forge in an image of its own: a static program, no shell, no root.
#
#   docker build -t forge --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse HEAD) .
#
# Shell jobs find no programs in it. Those that need some bring an image of their own:
#
#   docker build -t forge --build-arg BASE=debian:bookworm-slim .
ARG BASE=gcr.io/distroless/static-debian12:nonroot

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY . .
ARG VERSION=dev
ARG COMMIT
ARG DATE
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT} -X main.date=${DATE}" -o /forge ./cmd/forge

FROM ${BASE}
COPY --from=build /forge /usr/local/bin/forge
# By number, so that a cluster can see that it is not root.
USER 65532:65532
EXPOSE 8080
# SIGTERM hands leadership over and drains (node.drain_timeout): give it longer than that.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/forge"]
CMD ["serve", "--config", "/etc/forge/forge.toml"]
