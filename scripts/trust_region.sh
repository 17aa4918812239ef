#!/usr/bin/env bash
# Three ways to keep an update near the policy that acted (docs/trust-region.md): PPO's clip, its penalty on the KL, and
# TRPO, each with its own defaults, beside sb3-contrib's TRPO on Walker2d-v5. The penalty also by the paper's rule, which
# halves its weight. On Pendulum-v1 this also with a tenth of the target, and, like TRPO, with rollouts of whole episodes
# (predicted of TRPO: all seeds at -200 or better); and an agent with a fixed scale (covariance 0.5) and reward-to-go of
# whole episodes. TASKS="Hopper-v5" SEEDS=1-3 scripts/trust_region.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
bash scripts/patched.sh fixed_scale "$runs/notes"

files="algos/ppo_continuous.py algos/ppo_penalty.py algos/trpo_continuous.py"
rollout="--num-envs 10 --num-steps 201"
whole="$rollout --num-minibatches 30"
to_go="$whole --gae-lambda 1 --no-bootstrap-truncation --init-std 0.7071"
lines() {
  for task in ${TASKS:-Pendulum-v1 HalfCheetah-v5 Hopper-v5 Walker2d-v5}; do
    seeds="${SEEDS:-$([ "$task" = Pendulum-v1 ] && echo 1-10 || echo 1-5)}"
    run="--env-ids $task --seeds $seeds -- --total-timesteps 1000000 --device ${DEVICE:-auto}"
    echo "--scripts $files $run"
    paper="--scripts algos/ppo_penalty.py --tag paper"
    if [ "$task" = Pendulum-v1 ]; then
      echo "--scripts '$runs/notes/fixed_scale.py' $run $to_go"
      echo "$paper $run --beta-decay 0.5"
      echo "$paper-small-target $run --beta-decay 0.5 --kl-target 0.001"
      echo "$paper-whole-episodes $run --beta-decay 0.5 $whole"
      echo "--scripts algos/trpo_continuous.py --tag whole-episodes $run $rollout --num-minibatches 15"
    elif [ "$task" = HalfCheetah-v5 ]; then
      echo "$paper $run --beta-decay 0.5"
    elif [ "$task" = Walker2d-v5 ]; then
      echo "--scripts benchmarks/sb3_trpo.py --env-ids $task --seeds $seeds -- --total-timesteps 1000000"
    fi
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs -
