#!/usr/bin/env bash
# Runs the app with a real SuperLink and two SuperNodes on this machine, over TLS, each node known by its key:
# deploy.sh [rounds]
#
# PYTHON=/path/to/python names the environment, which needs deltawire and what requirements-flower.txt lists.
set -euo pipefail
rounds="${1:-3}"
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
keys="$work/keys" pids=()
mkdir -p "$keys"
trap '((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null; wait' EXIT

{
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=example ca" -keyout "$keys/ca.key" -out "$keys/ca.crt" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
  openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout "$keys/server.key" -out "$keys/server.csr"
  printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$keys/san"
  openssl x509 -req -in "$keys/server.csr" -CA "$keys/ca.crt" -CAkey "$keys/ca.key" -CAcreateserial -days 30 \
    -extfile "$keys/san" -out "$keys/server.crt"
} 2>"$keys/openssl.log"
for node in 0 1; do ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f "$keys/node$node"; done

port="$(free_port)"
printf '[superlink.tls]\naddress = "127.0.0.1:%s"\nroot-certificates = "%s"\n' "$port" "$keys/ca.crt" \
  >"$FLWR_HOME/config.toml"
flower-superlink --ssl-ca-certfile "$keys/ca.crt" --ssl-certfile "$keys/server.crt" --ssl-keyfile "$keys/server.key" \
  --enable-supernode-auth --host 127.0.0.1 --port "$port" --disable-runtime-dependency-installation \
  >"$work/superlink.log" 2>&1 &
pids+=($!)
within 300 flwr supernode list tls
for node in 0 1; do
  flwr supernode register "$keys/node$node.pub" tls
  flower-supernode --root-certificates "$keys/ca.crt" --superlink "127.0.0.1:$port" \
    --auth-supernode-private-key "$keys/node$node" --host 127.0.0.1 --port "$(free_port)" \
    --node-config "partition-id=$node num-partitions=2" >"$work/node$node.log" 2>&1 &
  pids+=($!)
done
train "$here" tls --stream --run-config "num-server-rounds=$rounds"
flwr list tls --format json | grep -A4 network-traffic || true
