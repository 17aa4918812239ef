#!/usr/bin/env bash
# PPO and RPO with few large minibatches (the first defaults of these files), with truncation bootstrapped and treated as
# termination; then RPO with other values of alpha and with other action distributions, compared with PPO.
set -euo pipefail
cd "$(dirname "$0")/.."

ppo="--scripts algos/ppo_continuous.py" rpo="--scripts algos/rpo_continuous.py"
both="$ppo algos/rpo_continuous.py --grid bootstrap-truncation=True,False"
pendulum="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-10}" walker="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
alphas="--grid rpo-alpha=0.01,0.1,0.5,1.0,3.0" distributions="--grid distribution=normal,laplace,gumbel"
ppo_by_alpha="--grid rpo-alpha=0" # identical to PPO, with the distributions of rpo_continuous.py
first="--num-steps 64 --num-minibatches 2 --update-epochs 10 --learning-rate 2e-3 --gamma 0.99 --activation SiLU"
first="$first --init-std 1 --norm-adv --vf-coef 0.5"
short="--total-timesteps ${STEPS:-400000} $first" medium="--total-timesteps ${STEPS:-1000000} $first" long="--total-timesteps ${STEPS:-3000000} $first"

python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
$both $pendulum -- $short
$both $walker -- $long

$rpo $pendulum $alphas -- $short
$rpo $pendulum $distributions -- $short
$rpo $pendulum $ppo_by_alpha --grid distribution=laplace,gumbel -- $short

$ppo $walker --tag 1M -- $medium
$rpo $walker --tag 1M $alphas -- $medium
$rpo $walker --tag 1M $distributions -- $medium
JOBS
