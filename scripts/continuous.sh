#!/usr/bin/env bash
# The runs of docs/results.md. PARTS chooses among:
#   defaults   PPO with default flags on the tasks with which they were chosen and on other tasks; PPO with a longer horizon
#              on LunarLander; RPO on two tasks, which is not on that page (the default)
#   published  PPO of plainrl and of Stable-Baselines3 with the settings that CleanRL published for MuJoCo, 1M steps
#   swimmer    why PPO scores less on Swimmer than the RL-Zoo's: discount factors, standardised advantages, rollouts of whole episodes
#   pusher     why Stable-Baselines3 is better on Pusher: value clipping and the simulator, one at a time
# The last two take less time with --seeds-per-process 5.
# TASKS="Ant-v5 Reacher-v5" SEEDS=1-3 scripts/continuous.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."
ppo="--scripts algos/ppo_continuous.py" seeds="--seeds ${SEEDS:-1-5}" device="--device ${DEVICE:-auto}"
published="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
published="$published --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 $device"

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
  local both="--tag published --env-ids $tasks" steps="--total-timesteps ${STEPS:-1000000}"
  echo "$both $ppo $seeds -- $steps $published"
  echo "$both --scripts benchmarks/peers/sb3_ppo.py --seeds ${PEER_SEEDS:-1-2} -- $steps --settings cleanrl"
}
swimmer() {
  local run="--scripts algos/ppo_continuous_seeds.py --env-ids Swimmer-v5 $seeds"
  local steps="--total-timesteps ${STEPS:-1000000} $device"
  echo "$run --grid gamma=0.995,0.999,0.9999 -- $steps"
  echo "$run --tag norm-adv --grid gamma=0.995,0.9999 -- $steps --norm-adv"
  echo "$run --tag long --grid gamma=0.995,0.9999 -- $steps --num-envs 4 --num-steps 1024 --gae-lambda 0.98"
  echo "$run --tag long-lambda95 -- $steps --num-envs 4 --num-steps 1024"
  echo "$run --tag lambda98 -- $steps --gae-lambda 0.98"
}
pusher() {
  local run="--scripts algos/ppo_continuous_seeds.py --env-ids Pusher-v5 $seeds"
  local flags="--total-timesteps ${STEPS:-1000000} $published"
  echo "$run --tag published-no-clip -- ${flags/--clip-vloss/--no-clip-vloss}"
  echo "$run --tag published-gymnasium -- $flags --env-backend gymnasium"
}

jobs="$(set -e; for part in ${PARTS:-defaults}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<< "$jobs"
