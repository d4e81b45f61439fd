# Sourced by the scripts: Flower in a folder of its own, quiet towards the network, one thread for each client.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="${WORK:-$(mktemp -d)}"
export FLWR_HOME="$work/home"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 RAY_USAGE_STATS_ENABLED=0
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export RAY_worker_niceness=0 # its own 15 would starve clients where other work runs
[[ -n "${PYTHON:-}" ]] && export PATH="$(dirname "$PYTHON"):$PATH"
mkdir -p "$FLWR_HOME"
echo "logs and keys: $work"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# train WORDS...: lets Flower run an app; if that fails, prints what its processes have called errors.
train() { timeout "${LIMIT:-300}" flwr run "$@" || { grep -h ERROR "$work"/*.log | tail -n 20 >&2; exit 1; } }

# within SECONDS COMMAND...: until the command finds the superlink, started just before; else says what both said last.
within() {
  local end=$((SECONDS + $1)) link=$!
  shift
  until "$@" >"$work/within.log" 2>&1; do
    if ((SECONDS > end)) || ! kill -0 "$link" 2>/dev/null; then
      echo "gave up waiting for: $*" >&2
      tail -n 20 "$work/within.log" "$work/superlink.log" >&2
      return 1
    fi
    sleep 0.5
  done
}
