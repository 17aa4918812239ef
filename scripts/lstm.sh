#!/usr/bin/env bash
# The runs of docs/algorithms/ppo-lstm.md: PPO with and without an LSTM on tasks that need memory.
# TASKS="CartPole" scripts/lstm.sh trains a part of the runs: CartPole, RecallCue, Pendulum; biases, which is RecallCue
# with other initial biases; zoo, which is Pendulum with hyperparameters like those that RL-Zoo tuned for it; velocities,
# which is the same with velocities and without memory; rollouts, which is zoo with rollouts longer than an episode,
# without scales of observations and rewards, and with both; or atari, which is Breakout from single images, two seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME

runs="${RUNS:-runs}"
tasks=" ${TASKS:-CartPole RecallCue biases Pendulum zoo velocities rollouts atari} "
short="--seeds ${SEEDS:-1-10} -- --device ${DEVICE:-auto} --total-timesteps ${STEPS:-100000}"
discrete="--scripts algos/ppo_lstm.py algos/ppo.py --env-ids"
box="--scripts algos/ppo_continuous_lstm.py algos/ppo_continuous.py --env-ids"
zoo="--num-envs 32 --num-steps 128 --num-minibatches 32 --update-epochs 10 --learning-rate 1e-3 --no-anneal-lr"
zoo="$zoo --gamma 0.9 --norm-adv --vf-coef 0.5 --init-std 1"
jobs=()
if [[ $tasks == *" CartPole "* ]]; then
  jobs+=("$discrete envs:CartPoleNoVel-v0 $short")
fi
if [[ $tasks == *" RecallCue "* ]]; then
  jobs+=("$discrete envs:RecallCue-v0 $short")
fi
if [[ $tasks == *" biases "* ]]; then
  python scripts/plainrl_tools/edits.py lstm_zero_biases "$runs/patched"
  jobs+=("--scripts '$runs/patched/lstm_zero_biases.py' --env-ids envs:RecallCue-v0 $short")
fi
if [[ $tasks == *" Pendulum "* ]]; then
  jobs+=("$box envs:PendulumNoVel-v0 $short")
fi
if [[ $tasks == *" zoo "* ]]; then
  jobs+=("--tag zoo $box envs:PendulumNoVel-v0 $short $zoo")
fi
if [[ $tasks == *" velocities "* ]]; then
  jobs+=("--tag zoo --scripts algos/ppo_continuous.py --env-ids Pendulum-v1 $short $zoo")
fi
if [[ $tasks == *" rollouts "* ]]; then # "half" has the minibatches of the long rollouts: half as many, twice as large
  lstm="--scripts algos/ppo_continuous_lstm.py --env-ids envs:PendulumNoVel-v0 $short $zoo"
  long="--num-envs 16 --num-steps 256 --num-minibatches 16" raw="--no-norm-obs --no-norm-reward"
  jobs+=("--tag zoo-half $lstm --num-minibatches 16")
  jobs+=("--tag zoo-long $lstm $long")
  jobs+=("--tag zoo-raw $lstm $raw")
  jobs+=("--tag zoo-raw-long $lstm $long $raw")
fi
if [[ $tasks == *" atari "* ]]; then
  jobs+=("--scripts algos/ppo_atari_lstm.py --env-ids BreakoutNoFrameskip-v4 --seeds ${SEEDS:-1-2} -- \
    --device ${DEVICE:-auto} --total-timesteps ${STEPS:-500000} --no-clip-vloss --torch-threads 1")
fi
printf '%s\n' "${jobs[@]}" |
  python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs -
