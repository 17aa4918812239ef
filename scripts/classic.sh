#!/usr/bin/env bash
# Small tasks with discrete actions, the custom environments, and learning from images. PARTS chooses among:
#   vectors   docs/classic.md and the pages of C51, action masks and REINFORCE
#   images    CartPole from images, and CarRacing with one and with four frames for each action (docs/pixels.md)
#   line      CartPole from images with and without a vertical line, PPO and DQN
#   average   actions of four steps, with the sum and with the mean of their rewards
#   one_step  the A2C of `vectors` with one-step targets
#   endless   CartPole and Pendulum with and without a time limit
# By default vectors and images.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" # for envs:NAME

seeds=${SEEDS:-21-30} # other seeds than 1 to 12, with which the defaults were chosen
few=${SEEDS:-21-25}
three=${SEEDS:-21-23}
variant=envs.cartpole_variants
runs="${RUNS:-runs}"
steps="${STEPS:+--total-timesteps $STEPS}" # without STEPS the default of the file
first="--num-steps 64 --num-minibatches 2 --update-epochs 10 --activation SiLU --init-std 1 --norm-adv --vf-coef 0.5" # defaults of an older version

vectors() {
  cat <<JOBS
--scripts algos/ppo.py --seeds $seeds --env-ids CartPole-v1 -- $steps
--scripts algos/dqn.py --seeds $seeds --env-ids CartPole-v1 --grid loss=mse,huber -- $steps
--scripts algos/ppo.py --tag a2c --seeds $seeds --env-ids CartPole-v1 \
  -- $steps --num-steps 5 --update-epochs 1 --num-minibatches 1 --no-norm-adv --gae-lambda 1
--scripts algos/c51.py --seeds $seeds --env-ids CartPole-v1 -- $steps
--scripts algos/dqn.py --seeds $seeds --env-ids CartPole-v1 --grid learning_rate=2.5e-4 -- $steps
--scripts algos/ppo_multidiscrete.py --seeds $seeds --env-ids envs:Switchboard-v0 envs:SwitchboardNoMask-v0 \
  -- --total-timesteps ${STEPS:-400000}
--scripts algos/reinforce.py --seeds $seeds --env-ids CartPole-v1 --grid baseline=value,none -- $steps
--scripts algos/reinforce.py --seeds $seeds --env-ids envs:PhysicsCartPole-v0 -- $steps
--scripts algos/dqn.py --seeds $few --env-ids Acrobot-v1 -- $steps
--scripts algos/ppo.py --seeds $few --env-ids Acrobot-v1 --grid activation=Tanh,SiLU --grid norm_obs=True,False -- $steps
--scripts algos/ppo.py --seeds $few --env-ids MountainCar-v0 -- --total-timesteps ${STEPS:-500000}
--scripts algos/ppo.py --seeds $few --env-ids LunarLander-v3 \
  -- --total-timesteps ${STEPS:-1000000} --gamma 0.999 --gae-lambda 0.98 --num-minibatches 8
--scripts algos/ppo_continuous.py --seeds $few --env-ids envs:BalancingPlateContinuous-v0 \
  -- --total-timesteps ${STEPS:-2000000} --gamma 0.999 --learning-rate 1e-3 $first
--scripts algos/dqn.py --seeds $three --env-ids envs:BalancingPlateStacked-v0 \
  -- --total-timesteps ${STEPS:-600000} --train-frequency 2 --learning-rate 2.5e-4 --gamma 0.97 --double-dqn --end-e 0.02 \
  --tau 0.01 --target-network-frequency 4 --eval-frequency 25000 --eval-episodes 20
JOBS
}
images() {
  python scripts/plainrl_tools/edits.py racing_skip "$runs/patched"
  cat <<JOBS
--scripts algos/ppo_pixels.py --seeds $three --env-ids envs:CartPolePixels-v0 $variant:Skip4-v0 -- --torch-threads 1 $steps
--scripts algos/dqn_pixels.py --seeds $three --env-ids envs:CartPolePixels-v0 -- --torch-threads 1 $steps
--scripts algos/ppo_pixels_continuous.py '$runs/patched/racing_skip.py' --seeds $three --env-ids CarRacing-v3 -- --torch-threads 1 $steps
JOBS
}
line() {
  echo "--scripts algos/ppo_pixels.py algos/dqn_pixels.py --seeds $three --env-ids envs:CartPolePixels-v0" \
    "$variant:Line-v0 $variant:Skip4-v0 $variant:Skip4Line-v0 -- --torch-threads 1 $steps"
}
average() {
  echo "--scripts algos/ppo.py algos/dqn.py --seeds $few --env-ids $variant:Rendered4-v0 $variant:Averaged4-v0 -- $steps"
}
one_step() {
  echo "--scripts algos/ppo.py --tag one-step --seeds $seeds --env-ids CartPole-v1" \
    "-- $steps --num-steps 5 --update-epochs 1 --num-minibatches 1 --no-norm-adv --gae-lambda 0"
}
endless() {
  python scripts/plainrl_tools/edits.py no_limit "$runs/patched"
  local simulator="--env-backend gymnasium" # EnvPool has only the tasks with a limit
  echo "--scripts algos/ppo.py --tag limits --seeds $few --env-ids CartPole-v1 envs:CartPoleEndless-v0" \
    "-- $steps $simulator --eval-max-steps 500"
  echo "--scripts algos/ppo_continuous.py '$runs/patched/no_limit.py' --tag limits --seeds $few --env-ids Pendulum-v1" \
    "-- --total-timesteps ${STEPS:-400000} $simulator --eval-max-steps 200 --eval-frequency 20000"
}

jobs="$(set -e; for part in ${PARTS:-vectors images}; do "$part"; done)"
python scripts/sweep.py --workers "${WORKERS:-0}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
