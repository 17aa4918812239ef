#!/usr/bin/env bash
# Three ways to keep an update near the policy that acted (docs/trust-region.md): PPO's clip, its penalty on the KL, and
# TRPO, each with its own defaults. TASKS="Hopper-v5" SEEDS=1-3 scripts/trust_region.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."

tasks="--env-ids ${TASKS:-HalfCheetah-v5 Hopper-v5 Walker2d-v5 Pendulum-v1} --seeds ${SEEDS:-1-5}"

python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py algos/ppo_penalty.py algos/trpo_continuous.py $tasks -- --total-timesteps 1000000
JOBS
