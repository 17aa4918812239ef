#!/usr/bin/env bash
# A robot arm with a sparse reward (docs/curiosity.md): with and without intrinsic reward, ten seeds each; and ICM with one
# mistake at a time, three seeds each. Most of the mistakes were found in the notes behind this project.
# SEEDS=1 scripts/arm.sh trains only seed 1, STEPS=20000 for so many steps.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}"
mistakes=(icm_ratio_matrix icm_slow_critic icm_no_mask icm_last_value icm_resets icm_unseen_cylinder)
for name in rnd_any_dimension "${mistakes[@]}"; do
  bash scripts/patched.sh "$name" "$runs/mistakes"
done

run="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-10}" few="--env-ids envs:ArmReach-v0 --seeds ${SEEDS:-1-3}"
icm="--scripts algos/ppo_icm.py" short="--total-timesteps ${STEPS:-300000}"
python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py algos/ppo_rnd.py algos/ppo_icm.py '$runs/mistakes/rnd_any_dimension.py' $run -- $short
--scripts algos/ppo_rnd.py $run --tag no-bonus -- $short --int-coef 0 --ext-coef 1
--scripts $(printf "'$runs/mistakes/%s.py' " "${mistakes[@]}") $few -- $short
$icm $few --tag time-limit -- $short --no-bootstrap-truncation
$icm $few --tag full-batch -- $short --num-minibatches 1
$icm $few --tag one-arm -- $short --num-envs 1 --num-steps 2048
$icm $few --tag heavy-bonus -- $short --ext-coef 0.02
JOBS
