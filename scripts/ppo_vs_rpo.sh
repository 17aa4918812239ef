#!/usr/bin/env bash
# PPO against RPO with few large minibatches (the first defaults of these files), time limits handled right and as
# terminal states; then RPO's alpha and the distribution of the action, one at a time, each beside PPO.
set -euo pipefail
cd "$(dirname "$0")/.."

sweep() {
  python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" "$@"
}
ppo=algos/ppo_continuous.py rpo=algos/rpo_continuous.py
pendulum="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-10}" walker="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
alphas=rpo-alpha=0.01,0.1,0.5,1.0,3.0 distributions=distribution=normal,laplace,gumbel
ppo_by_alpha=rpo-alpha=0 # is PPO bit for bit, with rpo_continuous.py's distributions
first="--num-steps 64 --num-minibatches 2 --update-epochs 10 --learning-rate 2e-3 --gamma 0.99 --activation SiLU --init-std 1
  --norm-adv --vf-coef 0.5"
short="-- --total-timesteps 400000 $first" long="-- --total-timesteps 3000000 $first"
medium="-- --total-timesteps 1000000 $first"

sweep --scripts $ppo $rpo $pendulum --grid bootstrap-truncation=True,False "$@" $short
sweep --scripts $ppo $rpo $walker --grid bootstrap-truncation=True,False "$@" $long

sweep --scripts $rpo $pendulum --grid $alphas "$@" $short
sweep --scripts $rpo $pendulum --grid $distributions "$@" $short
sweep --scripts $rpo $pendulum --grid $ppo_by_alpha --grid distribution=laplace,gumbel "$@" $short

sweep --scripts $ppo $walker --tag 1M "$@" $medium
sweep --scripts $rpo $walker --tag 1M --grid $alphas "$@" $medium
sweep --scripts $rpo $walker --tag 1M --grid $distributions "$@" $medium
