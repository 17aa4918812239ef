#!/usr/bin/env bash
# Why does the car stand still at the end of some runs with intrinsic reward on MountainCarContinuous-v0
# (docs/curiosity.md)? Twenty new seeds of PPO, RND and ICM; of RND and ICM without intrinsic reward; of RND with only the
# doubled weight of the reward; and of RND and ICM with one change at a time.
# SEEDS=11-15 scripts/curiosity_causes.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
changes=(rnd_centred rnd_forgetting rnd_unclipped icm_unclipped)
for name in "${changes[@]}"; do
  bash scripts/patched.sh "$name" "$runs/mistakes"
done

run="--env-ids MountainCarContinuous-v0 --seeds ${SEEDS:-11-30}" both="algos/ppo_rnd.py algos/ppo_icm.py"
short="--total-timesteps ${STEPS:-300000}"
python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs - <<JOBS
--scripts algos/ppo_continuous.py $both $(printf "'$runs/mistakes/%s.py' " "${changes[@]}") $run -- $short
--scripts $both --tag no-bonus $run -- $short --int-coef 0 --ext-coef 1
--scripts algos/ppo_rnd.py --tag double $run -- $short --int-coef 0 --ext-coef 2
JOBS
