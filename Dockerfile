# fdrl_ros with ROS 2 Jazzy, which comes as wheels: what `make setup` makes, without the compilers.
# Simulated, for research, not a medical device. docs/install.md tells how it was tried.
FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential ca-certificates cmake git \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/fdrl_ros
COPY . .
RUN make workspace

FROM python:3.11-slim-bookworm
# The workspace has absolute paths, so it lies where it was built.
COPY --from=build /opt/fdrl_ros /opt/fdrl_ros
RUN useradd --create-home --uid 10001 fdrl \
 && install -d -o fdrl -g fdrl -m 700 \
    /hosts /hosts/founder /hosts/servers /hosts/desk /hosts/one /hosts/two /hosts/three
USER fdrl
WORKDIR /home/fdrl
ENV OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
# Every command runs in the workspace: docker run IMAGE --help, docker run IMAGE train --plan quick
ENTRYPOINT ["/opt/fdrl_ros/tools/in_workspace", "fdrl"]
CMD ["--help"]
