#!/usr/bin/env bash
# Runs the app in Flower's simulation engine, on this machine alone: simulate.sh [clients] [rounds]
#
# PYTHON=/path/to/python names the environment, which needs deltawire and what requirements-flower.txt lists.
set -euo pipefail
clients="${1:-4}" rounds="${2:-3}"
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
export FLWR_LOCAL_SUPERLINK_HTTP_API_PORT="$(free_port)"

cat >"$FLWR_HOME/config.toml" <<END
[superlink]
default = "here"

[superlink.here]
address = ":local:"
options.num-supernodes = $clients
options.backend.client-resources.num-cpus = 1
options.backend.client-resources.num-gpus = 0.0
options.backend.init-args.num-cpus = 2
END

# flwr run leaves a SuperLink behind, which is ours to end.
stop() {
  local pid
  for pid in $(pgrep -f -- "--.*-port.$FLWR_LOCAL_SUPERLINK_HTTP_API_PORT" || true); do
    kill "$pid" 2>/dev/null || true
  done
}
trap stop EXIT
timeout "${LIMIT:-300}" flwr run "$here" here --stream --run-config "num-server-rounds=$rounds nodes=$clients"
