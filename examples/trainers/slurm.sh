#!/usr/bin/env bash
#SBATCH --job-name=deltawire
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
# Slurm: sbatch slurm.sh. One srun task is one rank; slurm.py reads Slurm's variables.
set -euo pipefail
# Without a pipe to head: scontrol, which still writes when head has ended, would fail the script.
hosts="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
MASTER_ADDR="${hosts%%$'\n'*}"
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
srun --kill-on-bad-exit=1 "${PYTHON:-python}" slurm.py
