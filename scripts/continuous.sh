#!/usr/bin/env bash
# The runs of docs/results.md: PPO with default flags on the tasks with which they were chosen and on other tasks, PPO with
# a longer horizon on LunarLander, and RPO on two tasks.
# TASKS="Ant-v5 Reacher-v5" SEEDS=1-3 scripts/continuous.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."

chosen_on="HalfCheetah-v5 BipedalWalker-v3 LunarLanderContinuous-v3"
untouched="Walker2d-v5 Hopper-v5 Ant-v4 Ant-v5 Pendulum-v1 WalkerWalk-v1 Swimmer-v5 Reacher-v5 InvertedDoublePendulum-v5"
untouched="$untouched Humanoid-v5"
seeds="--seeds ${SEEDS:-1-5}" steps="${STEPS:+--total-timesteps $STEPS}"
horizon="--scripts algos/ppo_continuous.py --tag horizon --env-ids LunarLanderContinuous-v3 $seeds"
horizon="$horizon -- --gamma 0.999 --gae-lambda 0.98 $steps"
rpo="--scripts algos/rpo_continuous.py --env-ids BipedalWalker-v3 Pendulum-v1 $seeds -- $steps"

python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py --env-ids ${TASKS:-$chosen_on $untouched} $seeds -- $steps
$([ "${TASKS:-}" ] || echo "$horizon")
$([ "${TASKS:-}" ] || echo "$rpo")
JOBS
