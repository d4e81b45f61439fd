#!/usr/bin/env bash
# Runs everything that the project has for a GPU, and prints one page: the machine, each step with its outcome, and
# the tables of bench/gpu_steps.py. Goes on after a failure; the exit status is that of all steps.
#
#   scripts/check_gpu.sh
#
# PYTHON is an interpreter that has torch, pytest, pytest-timeout, pytest-xdist, torchvision and deltawire; default:
# .venv/bin/python. OUT is the folder of the logs; default: out/gpu. LIMIT multiplies the steps' time limits; default: 1.
# DELTAWIRE_TEST_DEVICE=cpu tries what can be tried without a GPU: its tests then send CPU tensors the same way.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-.venv/bin/python}"
out="${OUT:-out/gpu}"
limit="${LIMIT:-1}"
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
export DELTAWIRE_TEST_DEVICE="${DELTAWIRE_TEST_DEVICE:-cuda}"
failed=0
summary=()

machine() {
  "$python" - <<'END'
import os, platform, sys
import deltawire
import torch
print(f"PyTorch {torch.__version__}, Python {platform.python_version()}, deltawire {deltawire.__version__}")
if torch.cuda.is_available():
    each = torch.cuda.get_device_properties(0)
    print(f"{each.name}, {each.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}, NCCL {torch.cuda.nccl.version()}")
elif os.environ["DELTAWIRE_TEST_DEVICE"] == "cuda":
    sys.exit("PyTorch sees no GPU here (torch.cuda.is_available() is false): there is nothing to check")
with open("/proc/cpuinfo") as cpuinfo:
    names = {line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")}
print(f"{', '.join(sorted(names))}, {os.cpu_count()} processors")
END
}

# step NAME SECONDS COMMAND...: runs one step; its output goes to NAME.log.
step() {
  local name="$1" seconds=$(($2 * limit)) begin=$SECONDS status=0
  shift 2
  timeout --kill-after 5 "$seconds" "$@" >"$out/$name.log" 2>&1 || status=$?
  local end
  end="$(grep -E '^[=]* ?[0-9]+ (passed|failed|skipped|error)|^[0-9]+ (passed|failed|skipped)' "$out/$name.log" | tail -n 1)"
  local outcome=good
  if [[ $status == 124 || $status == 137 ]]; then
    outcome="did not end in $seconds s"
  elif [[ $status != 0 ]]; then
    outcome=FAILED
  fi
  [[ "$outcome" == good ]] || failed=1
  summary+=("$(printf '%4d s  %-10s %s  %s' $((SECONDS - begin)) "$name" "$outcome" "$end")")
  echo "${summary[-1]}"
}

tests() {
  "$python" -m pytest -v -n "${JOBS:-$(nproc)}" --dist worksteal -p no:cacheprovider "$@"
}

# The files whose networks follow DELTAWIRE_TEST_DEVICE.
elsewhere=(ddp_options training loss_scale failures checkpoint powersgd copies metrics every_nth state)
elsewhere=("${elsewhere[@]/#/tests/torch/test_}")
elsewhere=("${elsewhere[@]/%/.py}")

if ! machine 2>&1 | tee "$out/machine.log"; then
  exit 1
fi
export -f tests
export python
step gpu 180 bash -c 'tests tests/torch/test_gpu_*.py'
step twins 240 env PYTHON="$python" scripts/check_twins.sh -n "${JOBS:-$(nproc)}"
# shellcheck disable=SC2086
step steps 110 "$python" bench/gpu_steps.py --device "${DELTAWIRE_TEST_DEVICE/cuda/cuda:0}" ${STEPS_ARGS:-}
step device 90 "$python" bench/device.py
step training 80 bash -c 'tests "$@"' _ "${elsewhere[@]}"

echo
grep -hE '^(FAILED|ERROR|SKIPPED)' "$out"/*.log | cut -c 1-200
grep -hE '^\||parameters; |^NVIDIA|^a copy' "$out/steps.log" "$out/device.log"
echo
printf '%s\n' "${summary[@]}"
exit "$failed"
