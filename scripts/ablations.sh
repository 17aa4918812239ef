#!/usr/bin/env bash
# PPO with something changed, on Pendulum-v1 unless it says otherwise. PARTS chooses among:
#   ablations  environments that are reset before each rollout, minibatches without shuffling, and tanh squashing without
#              the correction of the log-probability (docs/ablations.md). Rollouts of 8 environments x 256 steps have as
#              many steps as the default 64 x 32, and are longer than an episode. (the default)
#   resets     a reset before, or in the middle of, each rollout: Pendulum-v1, and BipedalWalker-v3 with rollouts of 32 steps
#              and with the notes' 4 environments x 2,048 steps (less time with --seeds-per-process 8)
#   notes      the Pendulum agent of the notes with each combination of its four suspects (docs/broadcast.md)
#   questions  rewards that arrive late, environments that go on during the update, and truncated episodes that continue with
#              the value of the next one (less time with --seeds-per-process 8)
#   squash     tanh squashing without an entropy term, with and without the correction
#   symptoms   one badly chosen flag at a time: what its log looks like (docs/not-learning.md)
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}" ppo="--scripts algos/ppo_continuous.py"
flags="--total-timesteps ${STEPS:-400000} --device ${DEVICE:-auto}"

ablations() {
  for name in reset_rollouts unshuffled uncorrected_squash; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/patched"
  done
  local run="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-8}" long="--num-envs 8 --num-steps 256"
  local reset="--scripts '$runs/patched/reset_rollouts.py'"
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
resets() {
  local copies="algos/ppo_continuous_seeds.py"
  for name in reset_rollouts_seeds reset_midway_seeds; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/patched"
    copies="$copies '$runs/patched/$name.py'"
  done
  local walker="--scripts $copies --env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
  local million="--total-timesteps ${STEPS:-1000000} --device ${DEVICE:-auto}"
  local four="--num-envs 4 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
  echo "--scripts $copies --env-ids Pendulum-v1 --seeds ${SEEDS:-1-8} -- $flags"
  echo "$walker -- $million"
  echo "$walker --tag four -- $million $four --norm-adv --init-std 1"
}
notes() {
  python scripts/plainrl_tools/edits.py notes_agent "$runs/patched"
  local settings="--num-envs 1 --num-steps 2048 --update-epochs 10 --num-minibatches 1 --gamma 0.99"
  settings="$settings --ent-coef 0.001 --init-std 1 --norm-adv --no-norm-obs --no-norm-reward"
  settings="$settings --no-anneal-lr --max-grad-norm 1e9"
  local suspects="--grid ratio=vector,matrix --grid critic-learning-rate=1e-3,1e-5"
  suspects="$suspects --grid gae=masked,unmasked --grid squash=corrected,uncorrected"
  echo "--scripts '$runs/patched/notes_agent.py' --env-ids Pendulum-v1 --seeds ${SEEDS:-1-5} $suspects" \
    "-- --total-timesteps ${STEPS:-147456} --device ${DEVICE:-auto} $settings"
}
questions() {
  local run="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-8}" right="algos/ppo_continuous_seeds.py"
  for name in late_reward next_episode_value pause; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/patched"
  done
  echo "--scripts $right '$runs/patched/late_reward.py' '$runs/patched/next_episode_value.py' $run -- $flags"
  echo "--scripts '$runs/patched/pause.py' $run --grid pause-steps=4,32 -- $flags"
}
squash() {
  python scripts/plainrl_tools/edits.py uncorrected_squash "$runs/patched"
  echo "--scripts algos/ppo_squashed.py '$runs/patched/uncorrected_squash.py' --env-ids Pendulum-v1 --seeds ${SEEDS:-1-8} -- $flags"
}
symptoms() {
  while read -r tag changed; do
    echo "$ppo --env-ids Pendulum-v1 --seeds ${SEEDS:-1-3} --tag $tag -- $flags $changed"
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

jobs="$(set -e; for part in ${PARTS:-ablations}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
