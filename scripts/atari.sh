#!/usr/bin/env bash
# The Atari runs of docs/atari.md. PARTS chooses among:
#   long       PPO, DQN and A2C on three games, 10M steps; each DQN run needs 7 GiB of memory (the default)
#   published  PPO, A2C and DQN of plainrl and of Stable-Baselines3 with the published settings, 500,000 steps, in
#              float32; PPO without value clipping, which Stable-Baselines3 defines differently; DQN with replay buffers of 100,000 steps
#   values     DQN and C51 with their own defaults but replay buffers of 100,000 steps, Breakout and Pong, 500,000 steps;
#              the runs of PQN beside them are those of scripts/pqn.sh
#   notes      as the practitioner's notes ran it: A2C on Breakout with the defaults of Stable-Baselines3 and with plainrl's,
#              also with the published RMSprop; PPO, A2C and one-step actor-critic on Pong; PPO's fast preset on BasicMath
#   mistakes   PPO on Pong without a mistake, and with each of three mistakes in a patched copy (docs/atari-leads.md)
# TASKS=PongNoFrameskip-v4 SEEDS=1-3 PARTS=published scripts/atari.sh trains a part of them. PRECISION=bfloat16 changes
# the precision of plainrl's published runs.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"

long() {
  echo "--scripts algos/ppo_atari.py algos/dqn_atari.py algos/a2c_atari.py --seeds ${SEEDS:-1-3} --env-ids" \
    "${TASKS:-PongNoFrameskip-v4 BreakoutNoFrameskip-v4 BeamRiderNoFrameskip-v4}" \
    "-- --total-timesteps ${STEPS:-10000000} --torch-threads 1 --device ${DEVICE:-auto}"
}
published() {
  local both="--env-ids ${TASKS:-BreakoutNoFrameskip-v4 PongNoFrameskip-v4}"
  local gradient="$both --seeds ${SEEDS:-1-5} --scripts" values="$both --seeds ${DQN_SEEDS:-1-3} --scripts"
  local flags="--total-timesteps ${STEPS:-500000} --torch-threads 1"
  local replay="--buffer-size 100000"
  local ours="--device ${DEVICE:-cpu} --precision ${PRECISION:-float32}" peer="benchmarks/peers/sb3_atari.py"
  echo "$gradient algos/ppo_atari.py -- $flags $ours --no-clip-vloss"
  echo "$gradient $peer --tag ppo -- $flags --algo PPO"
  echo "$gradient algos/a2c_atari.py -- $flags $ours"
  echo "$gradient $peer --tag a2c -- $flags --algo A2C"
  echo "$values algos/dqn_atari.py -- $flags $ours $replay"
  echo "$values $peer --tag dqn -- $flags --algo DQN $replay"
}
values() {
  echo "--scripts algos/dqn_atari.py algos/c51_atari.py --seeds ${SEEDS:-1-3} --env-ids" \
    "${TASKS:-BreakoutNoFrameskip-v4 PongNoFrameskip-v4}" \
    "-- --total-timesteps ${STEPS:-500000} --torch-threads 1 --device ${DEVICE:-auto} --buffer-size 100000"
}
notes() {
  for name in published_rmsprop one_step_targets clip_around_return; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/patched"
  done
  local breakout="--env-ids BreakoutNoFrameskip-v4 --seeds ${SEEDS:-1-2} --scripts"
  local pong="--env-ids PongNoFrameskip-v4 --seeds ${SEEDS:-1} --scripts"
  local million="--total-timesteps ${STEPS:-1000000} --torch-threads 1" half="--total-timesteps ${STEPS:-500000} --torch-threads 1"
  local device="--device ${DEVICE:-auto}" peer="benchmarks/peers/sb3_atari.py"
  local sb3_a2c="$device --num-envs 4 --ent-coef 0 --no-anneal-lr" # the defaults of Stable-Baselines3's A2C
  local published="'$runs/patched/published_rmsprop.py'"
  echo "$breakout $peer --tag a2c-own -- $million --algo A2C --own-defaults 4"
  echo "$breakout algos/a2c_atari.py $published --tag 1M -- $million $device"
  # an epsilon of 1e-5 that is added to the root is 1e-10 under it
  echo "$breakout $published --tag 1M-small-eps -- $million $device --rms-eps 1e-10"
  echo "$breakout algos/a2c_atari.py --tag sb3-defaults -- $million $sb3_a2c"
  # the defaults of its PPO, whose value loss is not halved
  local sb3_ppo="$device --num-envs 6 --num-steps 2048 --num-minibatches 192 --update-epochs 10 --learning-rate 3e-4 --no-anneal-lr"
  sb3_ppo="$sb3_ppo --clip-coef 0.2 --no-clip-vloss --ent-coef 0 --vf-coef 1"
  echo "$pong $peer --tag ppo-own -- $half --algo PPO --own-defaults 6"
  echo "$pong algos/ppo_atari.py --tag sb3-defaults -- $half $sb3_ppo"
  echo "$pong algos/a2c_atari.py --tag sb3-defaults -- $half $sb3_a2c"
  echo "$pong '$runs/patched/one_step_targets.py' --tag sb3-defaults -- $half $sb3_a2c"
  echo "$pong algos/ppo_atari.py '$runs/patched/clip_around_return.py' --tag 500k -- $half $device"
  local math="--env-ids ALE/BasicMath-v5 --seeds ${SEEDS:-1-2} --scripts algos/ppo_atari.py --tag fast -- $million $device"
  echo "$math --update-epochs 1 --num-minibatches 16 --learning-rate 5e-4 --no-clip-vloss"
}
mistakes() {
  local copies=""
  for name in done_cleared clip_around_return no_frame_skip; do
    python scripts/plainrl_tools/edits.py "$name" "$runs/mistakes" # the experiment has the name of the copy
    copies="$copies '$runs/mistakes/$name.py'"
  done
  echo "--scripts algos/ppo_atari.py $copies --env-ids PongNoFrameskip-v4 --seeds ${SEEDS:-1-3}" \
    "-- --total-timesteps ${STEPS:-2500000} --torch-threads 1 --device ${DEVICE:-auto}"
}

jobs="$(set -e; for part in ${PARTS:-long}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
