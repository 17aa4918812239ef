#!/usr/bin/env bash
# PPO and RPO with the settings of the RPO paper (arXiv:2212.07536), with truncation bootstrapped and treated as
# termination. The paper trains for 8M steps: STEPS=8000000 scripts/rpo_paper.sh
set -euo pipefail
cd "$(dirname "$0")/.."

both="--scripts algos/ppo_continuous.py algos/rpo_continuous.py --tag paper --grid bootstrap-truncation=True,False"
paper="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
paper="$paper --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 --env-backend gymnasium"

python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
$both --env-ids Pendulum-v1 --seeds ${SEEDS:-1-10} -- --total-timesteps ${STEPS:-500000} $paper
$both --env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5} -- --total-timesteps ${STEPS:-1000000} $paper
JOBS
