#!/usr/bin/env bash
# PPO against RPO with default flags, time limits handled right and as terminal states; then RPO's alpha and the
# distribution of the action, one at a time, each beside PPO.
set -euo pipefail
cd "$(dirname "$0")/.."

sweep() {
  python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" "$@"
}
ppo=algos/ppo_continuous.py rpo=algos/rpo_continuous.py
pendulum="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-10}" walker="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
alphas=rpo-alpha=0.01,0.1,0.5,1.0,3.0 distributions=distribution=normal,laplace,gumbel
ppo_by_alpha=rpo-alpha=0 # is PPO bit for bit, with rpo_continuous.py's distributions

sweep --scripts $ppo $rpo $pendulum --grid bootstrap-truncation=True,False "$@" -- --total-timesteps 400000
sweep --scripts $ppo $rpo $walker --grid bootstrap-truncation=True,False "$@"

sweep --scripts $rpo $pendulum --grid $alphas "$@" -- --total-timesteps 400000
sweep --scripts $rpo $pendulum --grid $distributions "$@" -- --total-timesteps 400000
sweep --scripts $rpo $pendulum --grid $ppo_by_alpha --grid distribution=laplace,gumbel "$@" -- --total-timesteps 400000

sweep --scripts $ppo $walker --tag 1M "$@" -- --total-timesteps 1000000
sweep --scripts $rpo $walker --tag 1M --grid $alphas "$@" -- --total-timesteps 1000000
sweep --scripts $rpo $walker --tag 1M --grid $distributions "$@" -- --total-timesteps 1000000
