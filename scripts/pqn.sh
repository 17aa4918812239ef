#!/usr/bin/env bash
# The runs of docs/algorithms/pqn.md. PARTS chooses among:
#   classic   CartPole-v1, 500,000 steps, ten seeds (the default)
#   epsilon   the same with the final epsilon of CleanRL, 0.05
#   atari     Breakout and Pong, 500,000 steps, three seeds
# TASKS=PongNoFrameskip-v4 SEEDS=1 PARTS=atari scripts/pqn.sh trains a part of them.
set -euo pipefail
cd "$(dirname "$0")/.."

classic() {
  echo "--scripts algos/pqn.py --seeds ${SEEDS:-21-30} --env-ids ${TASKS:-CartPole-v1} ${GRID:-}" \
    "-- --total-timesteps ${STEPS:-500000} --device ${DEVICE:-auto}"
}
epsilon() { GRID="--grid end_e=0.05" classic; }
atari() {
  echo "--scripts algos/pqn_atari.py --seeds ${SEEDS:-1-3}" \
    "--env-ids ${TASKS:-BreakoutNoFrameskip-v4 PongNoFrameskip-v4}" \
    "-- --total-timesteps ${STEPS:-500000} --torch-threads 1 --device ${DEVICE:-auto}"
}

jobs="$(set -e; for part in ${PARTS:-classic}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<< "$jobs"
