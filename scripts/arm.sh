#!/usr/bin/env bash
# A robot arm that is paid once, when it has done what was asked (docs/curiosity.md): with and without a bonus; with ICM and
# one mistake at a time, most of them of the notes behind this project; with RND and one change at a time.
# SEEDS=1 scripts/arm.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}"
mistakes=(icm_ratio_matrix icm_slow_critic icm_no_mask icm_last_value icm_resets icm_unseen_cylinder)
changes=(rnd_centred rnd_forgetting)
for name in "${mistakes[@]}" "${changes[@]}"; do
  bash scripts/patched.sh "$name" "$runs/mistakes"
done

run="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-10}" few="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-3}"
rnd="--scripts algos/ppo_rnd.py" icm="--scripts algos/ppo_icm.py" short="--total-timesteps 300000"
python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py algos/ppo_rnd.py algos/ppo_icm.py $run -- $short
$rnd $run --tag no-bonus -- $short --int-coef 0 --ext-coef 1
$rnd $run --grid rnd-scale=0.9 -- $short
$rnd $few --grid rnd-scale=0.3 -- $short
--scripts $(printf "$runs/mistakes/%s.py " "${mistakes[@]}" "${changes[@]}") $few -- $short
$icm $few --tag time-limit -- $short --no-bootstrap-truncation
$icm $few --tag full-batch -- $short --num-minibatches 1
$icm $few --tag one-arm -- $short --num-envs 1 --num-steps 2048
$icm $few --tag heavy-bonus -- $short --ext-coef 0.02
JOBS
