#!/usr/bin/env bash
# PPO on Pong without a mistake and with each of three mistakes (docs/atari-leads.md): copies of ppo_atari.py in which one
# line is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
for name in done_cleared clip_around_return no_frame_skip; do
  bash scripts/patched.sh "$name" "$runs/mistakes" # one file per mistake; the experiment has the file's name
done

python scripts/sweep.py --scripts algos/ppo_atari.py "$runs"/mistakes/{done_cleared,clip_around_return,no_frame_skip}.py \
  --env-ids PongNoFrameskip-v4 --seeds ${SEEDS:-1-3} --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" \
  --runs-dir "$runs" "$@" -- --total-timesteps "${STEPS:-2500000}" --torch-threads 1
