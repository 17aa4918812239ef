#!/usr/bin/env bash
# Three ways to keep an update near the policy that acted (docs/trust-region.md): PPO's clip, its penalty on the KL, and
# TRPO, each with its own defaults; and on Pendulum-v1 the agent of the notes: a fixed scale (covariance 0.5), reward-to-go
# of whole episodes. TASKS="Hopper-v5" SEEDS=1-3 scripts/trust_region.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
bash scripts/patched.sh fixed_scale "$runs/notes"

files="algos/ppo_continuous.py algos/ppo_penalty.py algos/trpo_continuous.py"
to_go="--num-envs 10 --num-steps 201 --num-minibatches 30 --gae-lambda 1 --no-bootstrap-truncation --init-std 0.7071"
lines() {
  for task in ${TASKS:-Pendulum-v1 HalfCheetah-v5 Hopper-v5 Walker2d-v5}; do
    seeds="${SEEDS:-$([ "$task" = Pendulum-v1 ] && echo 1-10 || echo 1-5)}"
    run="--env-ids $task --seeds $seeds -- --total-timesteps 1000000 --device ${DEVICE:-auto}"
    echo "--scripts $files $run"
    if [ "$task" = Pendulum-v1 ]; then echo "--scripts $runs/notes/fixed_scale.py $run $to_go"; fi
  done
}
lines | python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --runs-dir "$runs" "$@" --jobs -
