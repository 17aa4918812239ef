#!/usr/bin/env bash
# Minutes to a return of 30 on Breakout: PPO with the fast setting of docs/atari.md beside stable-baselines3 with the
# published one and with the fast one. A run has one thread and, on Linux, a core for itself. A peer stops where it is
# there, or after GIVE_UP minutes. A folder of its own:
#   RUNS=runs/atari_minutes scripts/atari_minutes.sh
#   python benchmarks/time_to_return.py runs/atari_minutes --ours ppo_atari-fast
set -euo pipefail
cd "$(dirname "$0")/.."

fast="--update-epochs 1 --num-minibatches 16 --learning-rate 5e-4 --no-clip-vloss"
run="--env-ids ${TASKS:-BreakoutNoFrameskip-v4} --seeds ${SEEDS:-1-3} --scripts"
both="--torch-threads 1 --eval-episodes ${EVAL_EPISODES:-30} --total-timesteps"
peer="--algo PPO --until-goal ${GIVE_UP:-120} $both"
jobs="$run algos/ppo_atari.py --tag fast -- $fast $both ${STEPS:-1000000}
$run benchmarks/sb3_atari.py --tag ppo-fast -- --fast $peer ${STEPS:-1000000}
$run benchmarks/sb3_atari.py --tag ppo-minutes -- --schedule-timesteps 10000000 $peer ${PEER_STEPS:-1500000}"

cores=($(python -c 'import os; print(*getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0))'))
for slot in $(seq 0 $((${WORKERS:-${#cores[@]}} - 1))); do # several sweeps share a folder
  core="${cores[slot % ${#cores[@]}]}"
  bound="$(command -v taskset > /dev/null && echo "taskset -c $core" || true)"
  $bound python scripts/sweep.py --workers 1 --runs-dir "${RUNS:-runs/atari_minutes}" "$@" --jobs - <<< "$jobs" &
done
status=0
for sweep in $(jobs -p); do wait "$sweep" || status=$?; done
exit "$status"
