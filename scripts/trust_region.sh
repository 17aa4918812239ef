#!/usr/bin/env bash
# Three ways to keep the new policy close to the old one (docs/trust-region.md): PPO's clipping, its KL penalty, and TRPO,
# each with its defaults. On Walker2d-v5 also the TRPO of sb3-contrib. On Pendulum-v1 and HalfCheetah-v5 the KL
# penalty also runs with the rule of the paper, which halves the coefficient after a small KL. On Pendulum-v1 there are
# more runs: the paper's rule with a tenth of the KL target; the paper's rule and TRPO with rollouts of whole episodes
# (the prediction for TRPO was a return of -200 or better for all seeds); and an agent with a fixed standard
# deviation (covariance 0.5) and the reward-to-go of whole episodes.
# TASKS="Hopper-v5" SEEDS=1-3 scripts/trust_region.sh trains a part of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
python scripts/plainrl_tools/edits.py fixed_scale "$runs/notes"

files="algos/ppo_continuous.py algos/ppo_penalty.py algos/trpo_continuous.py"
rollout="--num-envs 10 --num-steps 201"
whole="$rollout --num-minibatches 30"
to_go="$whole --gae-lambda 1 --no-bootstrap-truncation --init-std 0.7071"
lines() {
  for task in ${TASKS:-Pendulum-v1 HalfCheetah-v5 Hopper-v5 Walker2d-v5}; do
    seeds="${SEEDS:-$([ "$task" = Pendulum-v1 ] && echo 1-10 || echo 1-5)}"
    run="--env-ids $task --seeds $seeds -- --total-timesteps ${STEPS:-1000000} --device ${DEVICE:-auto}"
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
      echo "--scripts benchmarks/peers/sb3_trpo.py --env-ids $task --seeds $seeds -- --total-timesteps ${STEPS:-1000000}"
    fi
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs -
