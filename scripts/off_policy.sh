#!/usr/bin/env bash
# The runs of docs/algorithms/sac.md: SAC, TD3 and DDPG, and those of stable-baselines3 with the same settings.
# TASKS="Pendulum" scripts/off_policy.sh trains a part of the runs: Pendulum, HalfCheetah, Hopper or variants.
set -euo pipefail
cd "$(dirname "$0")/.."

tasks=" ${TASKS:-Pendulum HalfCheetah Hopper variants} "
seeds=${SEEDS:-1-5}
device="--device ${DEVICE:-auto}" # of plainrl; stable-baselines3 trains on the CPU
ours="--scripts algos/sac_continuous.py --seeds $seeds"
sb3="--scripts benchmarks/peers/sb3_sac.py --seeds $seeds"
td3="--scripts benchmarks/peers/sb3_sac.py --tag td3 --seeds $seeds"
jobs=()
if [[ $tasks == *" Pendulum "* ]]; then
  files="algos/sac_continuous.py algos/td3_continuous.py algos/ddpg_continuous.py"
  jobs+=("--scripts $files --env-ids Pendulum-v1 --seeds ${SEEDS:-1-10} -- $device --total-timesteps ${STEPS:-20000} --learning-starts 1000")
fi
if [[ $tasks == *" HalfCheetah "* ]]; then
  jobs+=("$ours --env-ids HalfCheetah-v5 -- $device --total-timesteps ${STEPS:-50000}")
  jobs+=("$sb3 --env-ids HalfCheetah-v5 -- --total-timesteps ${STEPS:-50000}")
  jobs+=("--scripts algos/td3_continuous.py --seeds $seeds --env-ids HalfCheetah-v5 -- $device --total-timesteps ${STEPS:-50000}")
  jobs+=("$td3 --env-ids HalfCheetah-v5 -- --algo TD3 --total-timesteps ${STEPS:-50000}")
fi
if [[ $tasks == *" Hopper "* ]]; then
  jobs+=("$ours --env-ids Hopper-v5 -- $device --total-timesteps ${STEPS:-50000}")
  jobs+=("$sb3 --env-ids Hopper-v5 -- --total-timesteps ${STEPS:-50000}")
fi
if [[ $tasks == *" variants "* ]]; then # CrossQ, SimBa and TQC
  files="algos/sac_continuous.py algos/crossq_continuous.py"
  for name in simba tqc; do
    python scripts/plainrl_tools/edits.py "$name" "${RUNS:-runs}/patched"
    files+=" '${RUNS:-runs}/patched/$name.py'"
  done
  jobs+=("--scripts $files --seeds ${SEEDS:-1-3} --env-ids HalfCheetah-v5 -- $device --total-timesteps ${STEPS:-50000}")
fi
printf '%s\n' "${jobs[@]}" |
  python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs -
