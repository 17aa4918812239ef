#!/usr/bin/env bash
# PPO, DQN and REINFORCE on small tasks with discrete actions. The algorithms' files are planned.
set -euo pipefail
cd "$(dirname "$0")/.."

sweep() {
  python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" "$@"
}

sweep --scripts algos/ppo.py algos/dqn.py algos/reinforce.py --seeds ${SEEDS:-1-10} \
  --env-ids CartPole-v1 Acrobot-v1 MountainCar-v0 LunarLander-v3 "$@"
