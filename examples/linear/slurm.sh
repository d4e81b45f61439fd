#!/usr/bin/env bash
#SBATCH --job-name=deltawire-linear
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
# A linear model on a cluster with Slurm: sbatch slurm.sh --data '/data/part-*' --model model.npz
#
# Each srun task is a rank; it takes its number from Slurm, and meets the others at the first node. The job's secret
# lies in the folder that the job was sent from, which all nodes must see.
set -euo pipefail
# Without a pipe to head: scontrol, which still writes when head has ended, would fail the script.
hosts="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
host="${hosts%%$'\n'*}"
token="$PWD/deltawire-$SLURM_JOB_ID.token"
trap 'rm -f "$token"' EXIT
(umask 077 && head -c 32 /dev/urandom > "$token")
srun --kill-on-bad-exit=1 "${DELTAWIRE:-deltawire}" train linear \
  --rendezvous "$host:$((20000 + SLURM_JOB_ID % 10000))" --token-file "$token" "$@"
