#!/usr/bin/env bash
# Ablations of PPO (docs/ablations.md) on Pendulum-v1 with the default flags: environments that are reset before each
# rollout, minibatches without shuffling, and tanh squashing without the correction of the log-probability. Rollouts of
# 8 environments x 256 steps have as many steps as the default 64 x 32, and are longer than an episode.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
for name in reset_rollouts unshuffled uncorrected_squash; do
  bash scripts/patched.sh "$name" "$runs/patched"
done

lines() {
  local run="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-8}"
  local flags="--total-timesteps ${STEPS:-400000} --device ${DEVICE:-auto}" long="--num-envs 8 --num-steps 256"
  local ppo="--scripts algos/ppo_continuous.py" reset="--scripts '$runs/patched/reset_rollouts.py'"
  echo "$ppo $run --tag short -- $flags"
  echo "$reset $run --tag short -- $flags"
  echo "$ppo $run --tag long -- $flags $long"
  echo "$reset $run --tag long -- $flags $long"
  echo "--scripts '$runs/patched/unshuffled.py' $run --tag short -- $flags"
  echo "$ppo $run --tag one-batch -- $flags --num-minibatches 1"
  echo "$ppo $run --tag one-batch-40 -- $flags --num-minibatches 1 --update-epochs 40"
  echo "--scripts algos/ppo_squashed.py $run --tag short --grid ent-coef=0,0.01,0.05 -- $flags"
  echo "--scripts '$runs/patched/uncorrected_squash.py' $run --tag short --grid ent-coef=0.01,0.05 -- $flags"
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs -
