#!/usr/bin/env bash
# A robot arm that is paid once, when it has done what was asked (docs/curiosity.md): with and without a bonus, and with ICM
# and one mistake at a time, most of them of the notes behind this project. SEEDS=1 scripts/arm.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME
runs="${RUNS:-runs}"
mistakes=(icm_ratio_matrix icm_slow_critic icm_no_mask icm_last_value icm_resets icm_unseen_cylinder)
for name in "${mistakes[@]}"; do
  bash scripts/patched.sh "$name" "$runs/mistakes"
done

seeds="--seeds ${SEEDS:-1-3}"
reach="--env-ids envs:ArmReach-v0 $seeds" push="--env-ids envs:ArmPush-v0 $seeds"
short="--total-timesteps 300000 --device ${DEVICE:-auto}" long="--total-timesteps 1000000 --device ${DEVICE:-auto}"
python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --runs-dir "$runs" "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py algos/ppo_rnd.py algos/ppo_icm.py $reach -- $short
--scripts algos/ppo_rnd.py $reach --tag no-bonus -- $short --int-coef 0 --ext-coef 1
--scripts $(printf "$runs/mistakes/%s.py " "${mistakes[@]}") $reach -- $short
--scripts algos/ppo_icm.py $reach --tag time-limit -- $short --no-bootstrap-truncation
--scripts algos/ppo_icm.py $reach --tag full-batch -- $short --num-minibatches 1
--scripts algos/ppo_icm.py $reach --tag one-arm -- $short --num-envs 1 --num-steps 2048
--scripts algos/ppo_icm.py $reach --tag heavy-bonus -- $short --ext-coef 0.02
--scripts algos/ppo_continuous.py algos/ppo_rnd.py algos/ppo_icm.py $push -- $long
JOBS
