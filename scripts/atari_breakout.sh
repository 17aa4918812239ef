#!/usr/bin/env bash
# PPO on Breakout beside stable-baselines3's with the same settings and a constant learning rate, and a copy of
# ppo_atari.py that presses FIRE after every lost life, as stable-baselines3's wrappers do (docs/atari.md).
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
steps="${TIMESTEPS:-200000}"
bash scripts/patched.sh fire_after_life "$runs/fire"
both="--env-ids BreakoutNoFrameskip-v4 --seeds ${SEEDS:-1-3}"
ours="--total-timesteps $steps --no-anneal-lr --no-clip-vloss --torch-threads 1 --device ${DEVICE:-auto}"

python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --runs-dir "$runs" "$@" --jobs - <<JOBS
$both --scripts algos/ppo_atari.py "$runs/fire/fire_after_life.py" -- $ours
$both --scripts benchmarks/sb3_atari.py -- --total-timesteps $steps --schedule-timesteps 1000000000
JOBS
