# The broker and its tool gloom, linked statically, in an otherwise empty
# image: docker build -t gloom:VERSION --build-arg VERSION=VERSION .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -o /out/ \
    -ldflags="-s -w -X gloom/cmd/internal/cli.version=$VERSION" ./cmd/gloomd ./cmd/gloom ./cmd/serverlessd ./cmd/jq-master \
    ./cmd/jobd ./cmd/jobd-master ./cmd/jobctl && mkdir /data

# The serverless queue: docker build --target serverlessd. It runs http and gloom
# handlers. For others, derive an image that adds node, php or python, and set
# --langs.
FROM scratch AS serverlessd
COPY --from=build /out/serverlessd /usr/bin/
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
VOLUME /data
ENV GLOOM_SQ_ADDR=0.0.0.0:3001 \
    GLOOM_SQ_INSECURE=true \
    GLOOM_SQ_DIR=/data \
    TMPDIR=/data
EXPOSE 3001
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["/usr/bin/serverlessd", "--healthcheck"]
ENTRYPOINT ["/usr/bin/serverlessd"]

# jq-master: docker build --target jq-master. cmd/jq-master/deploy/compose.yaml runs
# it with Redis.
FROM scratch AS jq-master
COPY --from=build /out/jq-master /usr/bin/
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /data /tmp
USER 65532:65532
ENV GLOOM_JQ_ADDR=0.0.0.0:9996 \
    GLOOM_JQ_INSECURE=true
EXPOSE 9996
HEALTHCHECK --interval=10s --timeout=3s --start-period=2s \
    CMD ["/usr/bin/jq-master", "--healthcheck"]
ENTRYPOINT ["/usr/bin/jq-master"]

# A worker: docker build --target worker. It has gloom and Debian's basic commands.
# To run your own programs with gloom work, derive an image that adds them.
FROM debian:12-slim AS worker
COPY --from=build /out/gloom /usr/bin/
USER 65532:65532
ENTRYPOINT ["/usr/bin/gloom"]

# jobd, its master and jobctl: docker build --target jobd. Derive an image that adds
# the command that the launcher runs for a row, and mount each program's configuration
# in /etc.
FROM debian:12-slim AS jobd
COPY --from=build /out/jobd /out/jobd-master /out/jobctl /usr/bin/
USER 65532:65532
EXPOSE 7080 7081
ENTRYPOINT ["/usr/bin/jobd"]

FROM scratch
COPY --from=build /out/gloomd /out/gloom /usr/bin/
USER 65532:65532
# A container is there to be reached from outside. Without GLOOM_TOKEN_FILE or
# GLOOM_TLS_CLIENT_CA, anybody who can reach the ports may do everything;
# gloomd warns of this when it starts.
ENV GLOOM_SUBMIT_ADDR=0.0.0.0:9998 \
    GLOOM_WORKER_ADDR=0.0.0.0:9999 \
    GLOOM_HTTP_ADDR=0.0.0.0:9997 \
    GLOOM_INSECURE=true
EXPOSE 9997 9998 9999
HEALTHCHECK --interval=10s --timeout=3s --start-period=2s \
    CMD ["/usr/bin/gloomd", "--healthcheck"]
ENTRYPOINT ["/usr/bin/gloomd"]
