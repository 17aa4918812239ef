#!/usr/bin/env bash
# All runs of docs/augmentation.md: PPO, RPO (alpha 0.5, its default), RAD and DrAC on two tasks of the RPO paper's table 1,
# and DrAC with an augmentation weight that is too large.
# PARTS=images trains PPO, RAD and DrAC from images, with shifts of four pixels: five seeds of 100,000 actions. PARTS=game
# trains them on an Atari game, Boxing: three seeds of 300,000 actions, each of which lasts four frames.
# TASKS="FishSwim-v1 WalkerRun-v1" SEEDS=1-3 PARTS=files scripts/augmentation.sh trains the four algorithms on other tasks.
# STEPS=8000000 trains for as long as the paper.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}" flags="--total-timesteps ${STEPS:-1000000}"
python scripts/plainrl_tools/edits.py drac_held_scale "$runs/patched"

files() {
  local four="algos/ppo_continuous.py algos/rpo_continuous.py algos/ppo_rad.py algos/ppo_drac.py"
  echo "--scripts $four --env-ids ${TASKS:-WalkerWalk-v1} --seeds ${SEEDS:-1-5} -- $flags"
  [ -n "${TASKS:-}" ] || echo "--scripts $four --env-ids PendulumSwingup-v1 --seeds ${SEEDS:-1-3} -- $flags"
}
weight() { # the authors' weight 0.1: on raw advantages, without its gradient for the standard deviation, on
  # standardised advantages
  local walk="--env-ids WalkerWalk-v1 --seeds"
  echo "--scripts algos/ppo_drac.py --tag heavy $walk ${SEEDS:-1-3} -- $flags --aug-coef 0.1"
  echo "--scripts '$runs/patched/drac_held_scale.py' $walk ${SEEDS:-1-3} -- $flags --aug-coef 0.1"
  echo "--scripts algos/ppo_continuous.py --tag norm-adv $walk ${SEEDS:-1-3} -- $flags --norm-adv"
  echo "--scripts algos/ppo_drac.py --tag norm-adv $walk ${SEEDS:-1-3} -- $flags --norm-adv --aug-coef 0.1"
}
images() {
  echo "--scripts algos/ppo_pixels.py algos/ppo_pixels_rad.py algos/ppo_pixels_drac.py" \
    "--env-ids ${TASKS:-envs:CartPolePixels-v0} --seeds ${SEEDS:-21-25}" \
    "-- --total-timesteps ${STEPS:-100000} --torch-threads 1"
}
game() {
  TASKS=ale_py:ALE/Boxing-v5 SEEDS="${SEEDS:-21-23}" STEPS="${STEPS:-300000}" images
}

for part in ${PARTS:-files weight}; do "$part"; done |
  python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs -
