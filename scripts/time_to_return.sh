#!/usr/bin/env bash
# Wall-clock time to a return: plainrl, Stable-Baselines3 and, if it is installed, SBX. The other libraries run with the
# settings of RL Zoo and with those of plainrl. CLEANRL="PYTHON FILE" adds CleanRL's own file (see
# benchmarks/peers/cleanrl_ppo.py). The runs are sorted by seed and task, so that all programs meet the same conditions, with one
# process per core. A run of another program stops at the return, or after GIVE_UP minutes (4), which is several times
# what plainrl needs. Use a separate folder:
#   RUNS=runs/minutes scripts/time_to_return.sh && python benchmarks/time_to_return.py runs/minutes
set -euo pipefail
cd "$(dirname "$0")/.."

steps() { if [ "$1" = Pendulum-v1 ]; then echo 400000; else echo 1000000; fi; }
peers="sb3"
if python -c "import sbx" 2> /dev/null; then peers="sb3 sbx"; fi
lines() {
  for task in ${TASKS:-BipedalWalker-v3 HalfCheetah-v5 LunarLanderContinuous-v3 Pendulum-v1}; do
    run="--env-ids $task --seeds ${SEEDS:-1-5}"
    flags="--total-timesteps ${STEPS:-$(steps "$task")}"
    short="--eval-episodes 10" # evaluations do not count for the time
    echo "$run --scripts algos/ppo_continuous.py -- $flags $short --device ${DEVICE:-cpu}" # the CPU, as for the others
    for library in $peers; do
      stop="--until-goal ${GIVE_UP:-4} $short"
      for settings in zoo ours; do
        echo "$run --scripts benchmarks/peers/sb3_ppo.py --tag $library-$settings -- $flags --library $library --settings $settings $stop"
      done
    done
    if [ "${CLEANRL:-}" ]; then
      read -r python file <<< "$CLEANRL"
      flags="$flags --python $python --file $file --until-goal ${GIVE_UP:-4}"
      echo "$run --scripts benchmarks/peers/cleanrl_ppo.py -- $flags"
    fi
  done
}
jobs="$(set -e; lines)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<< "$jobs"
