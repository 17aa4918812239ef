#!/usr/bin/env bash
# What common mistakes cost (docs/pitfalls.md): ppo.py and dqn.py on CartPole-v1, and copies with one mistake each.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
of_ppo="gae_unmasked done_reset done_late autoreset_trained other_sample slow_critic reordered_evaluation"
of_ppo="$of_ppo fresh_statistics one_seed"
of_dqn="one_epsilon target_at_ends"
for name in $of_ppo clipped_return ratio_matrix $of_dqn; do
  python scripts/plainrl_tools/edits.py "$name" "$runs/patched"
done

lines() {
  local run="--env-ids CartPole-v1 --seeds ${SEEDS:-1-3}" flags="--device ${DEVICE:-auto}"
  local ppo="$flags --total-timesteps ${STEPS:-100000}" dqn="$flags --total-timesteps ${STEPS:-30000}"
  echo "--scripts algos/ppo.py $run -- $ppo"
  echo "--scripts algos/ppo.py $run --tag clip-vloss -- $ppo --clip-vloss"
  echo "--scripts '$runs/patched/clipped_return.py' $run -- $ppo --clip-vloss"
  # minibatches of 256: the matrix of 2,048 x 2,048 of the default ones is slow
  echo "--scripts algos/ppo.py $run --tag mb16 -- $ppo --num-minibatches 16"
  echo "--scripts '$runs/patched/ratio_matrix.py' $run -- $ppo --num-minibatches 16"
  for name in $of_ppo; do
    echo "--scripts '$runs/patched/$name.py' $run -- $ppo"
  done
  echo "--scripts algos/dqn.py $run -- $dqn"
  for name in $of_dqn; do
    echo "--scripts '$runs/patched/$name.py' $run -- $dqn"
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs -
