#!/usr/bin/env bash
# PPO, A2C and DQN of plainrl and of Stable-Baselines3 with the published settings on Breakout and Pong, for the same number
# of steps (docs/atari.md), all in float32. PPO runs without value clipping, which Stable-Baselines3 defines differently.
# A2C also runs with an epsilon of 1e-8. DQN's replay buffers contain 100,000 steps.
# TASKS=PongNoFrameskip-v4 SEEDS=1-3 scripts/atari_published.sh trains a part of the runs. PRECISION=bfloat16 changes the
# precision of plainrl's runs.
set -euo pipefail
cd "$(dirname "$0")/.."

both="--env-ids ${TASKS:-BreakoutNoFrameskip-v4 PongNoFrameskip-v4}"
gradient="$both --seeds ${SEEDS:-1-5} --scripts"
values="$both --seeds ${DQN_SEEDS:-1-3} --scripts"
flags="--total-timesteps ${STEPS:-500000} --torch-threads 1"
replay="--buffer-size 100000"
ours="--device ${DEVICE:-cpu} --precision ${PRECISION:-float32}" small="--rms-eps 1e-8"

python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "${RUNS:-runs}" "$@" --jobs - <<JOBS
$gradient algos/ppo_atari.py -- $flags $ours --no-clip-vloss
$gradient benchmarks/sb3_atari.py --tag ppo -- $flags --algo PPO
$gradient algos/a2c_atari.py -- $flags $ours
$gradient benchmarks/sb3_atari.py --tag a2c -- $flags --algo A2C
$gradient algos/a2c_atari.py --tag small-eps -- $flags $ours $small
$gradient benchmarks/sb3_atari.py --tag a2c-small-eps -- $flags --algo A2C $small
$values algos/dqn_atari.py -- $flags $ours $replay
$values benchmarks/sb3_atari.py --tag dqn -- $flags --algo DQN $replay
JOBS
