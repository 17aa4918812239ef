#!/usr/bin/env bash
# Minutes to a return, ours beside stable-baselines3 and, where it is installed, SBX: with RL-Zoo's settings and with ours.
# CLEANRL="PYTHON FILE" adds CleanRL's own file (benchmarks/cleanrl_ppo.py says what it needs).
# Seed by seed and task by task, so that the sides meet the same machine; a process for every core. A peer stops where it
# is there, or after GIVE_UP minutes (4): several times what ours takes. A folder of its own:
#   RUNS=runs/minutes scripts/time_to_return.sh && python benchmarks/time_to_return.py runs/minutes
set -euo pipefail
cd "$(dirname "$0")/.."

steps() { if [ "$1" = Pendulum-v1 ]; then echo 400000; else echo 1000000; fi; }
peers="sb3"
if python -c "import sbx" 2> /dev/null; then peers="sb3 sbx"; fi
lines() {
  for task in ${TASKS:-BipedalWalker-v3 HalfCheetah-v5 LunarLanderContinuous-v3 Pendulum-v1}; do
    run="--env-ids $task --seeds ${SEEDS:-1-5}"
    flags="--total-timesteps $(steps "$task")"
    short="--eval-episodes 10" # evaluations are not on the clock
    echo "$run --scripts algos/ppo_continuous.py -- $flags $short --device ${DEVICE:-cpu}" # as the peers
    for library in $peers; do
      stop="--until-goal ${GIVE_UP:-4} $short"
      for settings in zoo ours; do
        echo "$run --scripts benchmarks/sb3_ppo.py --tag $library-$settings -- $flags --library $library --settings $settings $stop"
      done
    done
    if [ "${CLEANRL:-}" ]; then
      read -r python file <<< "$CLEANRL"
      flags="$flags --python $python --file $file --until-goal ${GIVE_UP:-4}"
      echo "$run --scripts benchmarks/cleanrl_ppo.py -- $flags"
    fi
  done
}
jobs="$(set -e; lines)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<< "$jobs"
