#!/usr/bin/env bash
# Two machines, by torchrun: NODE_RANK=0 on the first one, 1 on the other, the same MASTER_ADDR on both.
#
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 ./multinode.sh ddp.py
#
# deltawire listens on the address from which packets to MASTER_ADDR leave; interface= of register says another.
set -euo pipefail
exec "${PYTHON:-python}" -m torch.distributed.run --nnodes=2 --nproc-per-node="${RANKS_PER_NODE:-1}" \
  --node-rank="$NODE_RANK" --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" "$@"
