#!/usr/bin/env bash
# The runs of docs/results.md. PARTS chooses among:
#   defaults   PPO with default flags on the tasks with which they were chosen and on other tasks; PPO with a longer horizon
#              on LunarLander; RPO on two tasks (the default)
#   published  PPO of plainrl and of Stable-Baselines3 with the settings that CleanRL published for MuJoCo, 1M steps
# TASKS="Ant-v5 Reacher-v5" SEEDS=1-3 scripts/continuous.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."
ppo="--scripts algos/ppo_continuous.py" seeds="--seeds ${SEEDS:-1-5}" device="--device ${DEVICE:-auto}"

defaults() {
  local tasks="HalfCheetah-v5 BipedalWalker-v3 LunarLanderContinuous-v3" # the defaults were chosen with these
  local steps="${STEPS:+--total-timesteps $STEPS} $device"
  tasks="$tasks Walker2d-v5 Hopper-v5 Ant-v4 Ant-v5 Pendulum-v1 WalkerWalk-v1 Swimmer-v5 Reacher-v5"
  tasks="$tasks InvertedDoublePendulum-v5 Humanoid-v5"
  echo "$ppo --env-ids ${TASKS:-$tasks} $seeds -- $steps"
  if [ -z "${TASKS:-}" ]; then
    echo "$ppo --tag horizon --env-ids LunarLanderContinuous-v3 $seeds -- --gamma 0.999 --gae-lambda 0.98 $steps"
    echo "--scripts algos/rpo_continuous.py --env-ids BipedalWalker-v3 Pendulum-v1 $seeds -- $steps"
  fi
}
published() {
  local tasks="${TASKS:-HalfCheetah-v5 Walker2d-v5 Hopper-v5 Ant-v5 Reacher-v5 Pusher-v5 InvertedPendulum-v5}"
  local flags="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
  flags="$flags --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 $device"
  local both="--tag published --env-ids $tasks" steps="--total-timesteps ${STEPS:-1000000}"
  echo "$both $ppo $seeds -- $steps $flags"
  echo "$both --scripts benchmarks/peers/sb3_ppo.py --seeds ${PEER_SEEDS:-1-2} -- $steps --settings cleanrl"
}

jobs="$(set -e; for part in ${PARTS:-defaults}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<< "$jobs"
