#!/usr/bin/env bash
# Runs the app in Flower's simulation engine, on this machine alone: simulate.sh [clients] [rounds]
#
# PYTHON=/path/to/python names the environment, which needs deltawire and what requirements-flower.txt lists.
# APP=/path/to/app runs another app, and CONFIG="key=1 other=2" sets its run config.
set -euo pipefail
clients="${1:-4}" rounds="${2:-3}"
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
port="$(free_port)"
cat >"$FLWR_HOME/config.toml" <<END
[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:$port"
insecure = true
options.num-supernodes = $clients
options.backend.client-resources.num-cpus = 1
options.backend.client-resources.num-gpus = 0.0
options.backend.init-args.num-cpus = 2
END

# With address = ":local:" flwr starts it, but waits 15 s for it at most, which a busy machine needs for its imports.
flower-superlink --simulation --insecure --host 127.0.0.1 --port "$port" >"$work/superlink.log" 2>&1 &
link=$!
stop() { # it, and what it has started: all have the port in their command line
  kill "$link" 2>/dev/null || true
  for pid in $(pgrep -f -- "--.*-(port|address).*$port" || true); do kill "$pid" 2>/dev/null || true; done
  wait
}
trap stop EXIT
within 300 python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health', timeout=5)"
train "${APP:-$here}" here --stream --run-config "num-server-rounds=$rounds ${CONFIG:-nodes=$clients}"
