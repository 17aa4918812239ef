#!/usr/bin/env bash
# Minutes to a return, ours beside stable-baselines3 and, where it is installed, SBX: with RL-Zoo's settings and with ours.
# Seed by seed, so that the sides of one seed meet the same machine. Then: python benchmarks/time_to_return.py runs
set -euo pipefail
cd "$(dirname "$0")/.."

tasks="BipedalWalker-v3 HalfCheetah-v5 LunarLanderContinuous-v3 Pendulum-v1"
steps() { if [ "$1" = Pendulum-v1 ]; then echo 400000; else echo 1000000; fi; }
sweep() { python scripts/sweep.py --workers 1 --runs-dir "${RUNS:-runs}/$1-$2-$3" --env-ids "$2" --seeds "$3" "${@:4}"; }
peers="sb3"
if python -c "import sbx" 2> /dev/null; then peers="sb3 sbx"; fi

for seed in ${SEEDS:-1 2 3 4 5}; do
  for task in $tasks; do
    sweep ours "$task" "$seed" --scripts algos/ppo_continuous.py "$@" -- --total-timesteps "$(steps "$task")"
    for library in $peers; do
      for settings in zoo ours; do
        sweep "$library-$settings" "$task" "$seed" --scripts benchmarks/sb3_ppo.py --tag "$library-$settings" "$@" \
          -- --library "$library" --settings "$settings" --total-timesteps "$(steps "$task")"
      done
    done
  done
done
