#!/usr/bin/env bash
# A robot arm that is paid once, when it has done what was asked (docs/curiosity.md): with and without a bonus, and with ICM
# and one mistake at a time, most of them of the notes behind this project. TASKS="envs:ArmReach-v0" SEEDS=1 scripts/arm.sh
# trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}"
mistakes=(icm_ratio_matrix icm_slow_critic icm_no_mask icm_last_value icm_resets icm_unseen_cylinder)
for name in "${mistakes[@]}"; do
  bash scripts/patched.sh "$name" "$runs/mistakes"
done

files="algos/ppo_continuous.py algos/ppo_rnd.py algos/ppo_icm.py"
lines() {
  for task in ${TASKS:-envs:ArmReach-v0 envs:ArmPush-v0}; do
    run="--env-ids $task --seeds ${SEEDS:-1-3}"
    if [ "$task" = envs:ArmPush-v0 ]; then
      echo "--scripts $files $run -- --total-timesteps 1000000"
      continue
    fi
    short="--total-timesteps 300000"
    echo "--scripts $files $(printf "$runs/mistakes/%s.py " "${mistakes[@]}") $run -- $short"
    echo "--scripts algos/ppo_rnd.py $run --tag no-bonus -- $short --int-coef 0 --ext-coef 1"
    icm="--scripts algos/ppo_icm.py $run"
    echo "$icm --tag time-limit -- $short --no-bootstrap-truncation"
    echo "$icm --tag full-batch -- $short --num-minibatches 1"
    echo "$icm --tag one-arm -- $short --num-envs 1 --num-steps 2048"
    echo "$icm --tag heavy-bonus -- $short --ext-coef 0.02"
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs -
