#!/usr/bin/env bash
# The runs of docs/curiosity.md: RND and ICM on tasks with a reward that is hard to find. PARTS chooses among:
#   tasks       compared with RND's file without intrinsic reward, and with PPO (the default)
#   causes      why the car stands still at the end of some runs on MountainCarContinuous-v0: twenty new seeds of PPO, RND and
#               ICM; of both without intrinsic reward; of RND's file without it and with its default weight of the reward, 2; and with
#               one change at a time
#   arm         a robot arm with a sparse reward: with and without intrinsic reward, ten seeds each
#   mistakes    the arm with ICM, right and with one of ten mistakes at a time, five seeds each
# TASKS="MountainCar-v0" SEEDS=1-3 scripts/curiosity.sh trains a part of the runs, STEPS=20000 for so many steps.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}" device="--device ${DEVICE:-auto}"
both="algos/ppo_rnd.py algos/ppo_icm.py"

patched() { # the patched copies of these names, as files for --scripts
  for name in "$@"; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/mistakes"
    printf "'%s' " "$runs/mistakes/$name.py"
  done
}
tasks() {
  local task plain steps run
  for task in ${TASKS:-MountainCarContinuous-v0 MountainCar-v0 CartpoleSwingupSparse-v1}; do
    plain=ppo_continuous steps=300000
    if [ "$task" = MountainCar-v0 ]; then plain=ppo; fi
    if [ "$task" = CartpoleSwingupSparse-v1 ]; then steps=1000000; fi
    run="--env-ids $task --seeds ${SEEDS:-1-5} -- --total-timesteps ${STEPS:-$steps} $device"
    echo "--scripts algos/$plain.py $both $run"
    echo "--scripts algos/ppo_rnd.py --tag no-bonus $run --int-coef 0 --ext-coef 1"
  done
}
causes() {
  local run="--env-ids MountainCarContinuous-v0 --seeds ${SEEDS:-11-30}"
  local short="--total-timesteps ${STEPS:-300000} $device" changed
  changed="$(patched rnd_centred rnd_forgetting rnd_unclipped icm_unclipped)"
  echo "--scripts algos/ppo_continuous.py $both $changed $run -- $short"
  echo "--scripts $both --tag no-bonus $run -- $short --int-coef 0 --ext-coef 1"
  echo "--scripts algos/ppo_rnd.py --tag double $run -- $short --int-coef 0 --ext-coef 2"
}
arm() {
  local run="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-10}" short="--total-timesteps ${STEPS:-300000} $device" larger
  larger="$(patched rnd_any_dimension)"
  echo "--scripts algos/ppo_continuous.py $both $larger $run -- $short"
  echo "--scripts algos/ppo_rnd.py $run --tag no-bonus -- $short --int-coef 0 --ext-coef 1"
}
mistakes() {
  local few="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-5}" short="--total-timesteps ${STEPS:-300000} $device" changed
  local icm="--scripts algos/ppo_icm.py"
  changed="$(patched icm_ratio_matrix icm_slow_critic icm_no_mask icm_last_value icm_resets icm_unseen_cylinder)"
  echo "--scripts algos/ppo_icm.py $changed $few -- $short"
  echo "$icm $few --tag time-limit -- $short --no-bootstrap-truncation"
  echo "$icm $few --tag full-batch -- $short --num-minibatches 1"
  echo "$icm $few --tag one-arm -- $short --num-envs 1 --num-steps 2048"
  echo "$icm $few --tag heavy-bonus -- $short --ext-coef 0.02"
}

jobs="$(set -e; for part in ${PARTS:-tasks}; do "$part"; done)" # a patch that does not apply ends the script here
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
