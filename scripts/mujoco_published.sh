#!/usr/bin/env bash
# PPO of plainrl and of Stable-Baselines3 with the settings that CleanRL published for MuJoCo, 1M steps.
set -euo pipefail
cd "$(dirname "$0")/.."

tasks="${TASKS:-HalfCheetah-v5 Walker2d-v5 Hopper-v5 Ant-v5 Reacher-v5 Pusher-v5 InvertedPendulum-v5}"
published="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
published="$published --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 --device ${DEVICE:-auto}"
both="--tag published --env-ids $tasks"

python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
$both --scripts algos/ppo_continuous.py --seeds ${SEEDS:-1-5} -- --total-timesteps ${STEPS:-1000000} $published
$both --scripts benchmarks/sb3_ppo.py --seeds ${PEER_SEEDS:-1-2} -- --total-timesteps ${STEPS:-1000000} --settings cleanrl
JOBS
