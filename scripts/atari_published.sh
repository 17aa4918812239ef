#!/usr/bin/env bash
# PPO, A2C and DQN with their published settings on Breakout and Pong, beside stable-baselines3's with the same ones, for
# equal steps (docs/atari.md), all in float32. PPO without value clipping: stable-baselines3's is another. A2C also with
# an epsilon of 1e-8. DQN's replays hold 100,000 steps.
# TASKS=PongNoFrameskip-v4 SEEDS=1-3 scripts/atari_published.sh trains a part; with PRECISION=bfloat16, ours in that.
set -euo pipefail
cd "$(dirname "$0")/.."

both="--env-ids ${TASKS:-BreakoutNoFrameskip-v4 PongNoFrameskip-v4}"
gradient="$both --seeds ${SEEDS:-1-5} --scripts"
values="$both --seeds ${DQN_SEEDS:-1-3} --scripts"
flags="--total-timesteps ${TIMESTEPS:-500000} --torch-threads 1"
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
