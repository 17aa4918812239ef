#!/usr/bin/env bash
# PPO, DQN and A2C on three Atari games for 10M steps, with one thread per run. Each DQN run needs 7 GiB of memory.
set -euo pipefail
cd "$(dirname "$0")/.."

python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  --scripts algos/ppo_atari.py algos/dqn_atari.py algos/a2c_atari.py --seeds ${SEEDS:-1-3} \
  --env-ids PongNoFrameskip-v4 BreakoutNoFrameskip-v4 BeamRiderNoFrameskip-v4 "$@" -- --total-timesteps "${STEPS:-10000000}" --torch-threads 1
