#!/usr/bin/env bash
# Logs of runs with one badly chosen flag (docs/not-learning.md): ppo_continuous.py on Pendulum-v1 with its defaults, and
# with one changed flag at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

lines() {
  while read -r tag flags; do
    echo "--scripts algos/ppo_continuous.py --env-ids Pendulum-v1 --seeds ${SEEDS:-1-3} --tag $tag -- \
      --total-timesteps ${STEPS:-400000} --device ${DEVICE:-auto} $flags"
  done <<CASES
as-it-is
large-learning-rate --learning-rate 0.01
small-learning-rate --learning-rate 2.5e-5
few-updates --num-minibatches 1 --update-epochs 1
no-clip --clip-coef 10
large-bonus --ent-coef 0.05
narrow-start --init-std 0.02
short-sight --gamma 0.5
raw-rewards --no-norm-reward
raw-observations --no-norm-obs
limit-as-end --no-bootstrap-truncation
CASES
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs -
