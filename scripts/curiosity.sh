#!/usr/bin/env bash
# RND and ICM (docs/curiosity.md) on tasks with a reward that is hard to find, compared with RND's file without intrinsic
# reward and with the file of PPO. TASKS="MountainCar-v0" SEEDS=1-3 scripts/curiosity.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."

lines() {
  for task in ${TASKS:-MountainCarContinuous-v0 MountainCar-v0 CartpoleSwingupSparse-v1}; do
    plain=ppo_continuous steps=300000
    if [ "$task" = MountainCar-v0 ]; then plain=ppo; fi
    if [ "$task" = CartpoleSwingupSparse-v1 ]; then steps=1000000; fi
    run="--env-ids $task --seeds ${SEEDS:-1-5} -- --total-timesteps ${STEPS:-$steps} --device ${DEVICE:-auto}"
    echo "--scripts algos/$plain.py algos/ppo_rnd.py algos/ppo_icm.py $run"
    echo "--scripts algos/ppo_rnd.py --tag no-bonus $run --int-coef 0 --ext-coef 1"
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs -
