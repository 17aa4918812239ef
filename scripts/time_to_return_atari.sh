#!/usr/bin/env bash
# Wall-clock time to a return of 30 on Breakout, or of 18 on Pong: plainrl's PPO with the game's fast preset of
# docs/atari.md, and Stable-Baselines3's PPO with the published and with the fast settings. Each run has one thread and, on
# Linux, one core for itself. A run of Stable-Baselines3 stops at the return, or after GIVE_UP minutes (120). Use a
# separate folder for each game:
#   RUNS=runs/atari_minutes scripts/time_to_return_atari.sh
#   python benchmarks/time_to_return.py runs/atari_minutes --ours ppo_atari-fast
#   TASKS=PongNoFrameskip-v4 RUNS=runs/pong_minutes scripts/time_to_return_atari.sh
#   python benchmarks/time_to_return.py runs/pong_minutes --ours ppo_atari-fast-pong-4m
set -euo pipefail
cd "$(dirname "$0")/.."

fast="--update-epochs 1 --num-minibatches 16 --learning-rate 5e-4 --no-clip-vloss" tag=fast steps=${STEPS:-1000000}
case "${TASKS:-}" in
  PongNoFrameskip-v4)
    fast="--num-envs 16 --update-epochs 2 --num-minibatches 16 --clip-coef 0.2 --learning-rate 5e-4 --no-clip-vloss"
    tag=fast-pong-4m steps=${STEPS:-4000000}
    ;;
  *Pong*) echo "TASKS=$TASKS: Pong has its own preset; give TASKS=PongNoFrameskip-v4 without other games" >&2; exit 2 ;;
esac
run="--env-ids ${TASKS:-BreakoutNoFrameskip-v4} --seeds ${SEEDS:-1-3} --scripts"
both="--torch-threads 1 --eval-episodes ${EVAL_EPISODES:-30} --total-timesteps"
peer="--algo PPO --until-goal ${GIVE_UP:-120} $both"
jobs="$run algos/ppo_atari.py --tag $tag -- $fast --device ${DEVICE:-cpu} $both $steps
$run benchmarks/peers/sb3_atari.py --tag ppo-fast -- --fast $peer $steps
$run benchmarks/peers/sb3_atari.py --tag ppo-minutes -- --schedule-timesteps 10000000 $peer ${PEER_STEPS:-$((steps * 3 / 2))}"

allowed="$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status 2> /dev/null || echo)" # such as 0-3,8
[ "$allowed" ] || allowed="0-$(($(getconf _NPROCESSORS_ONLN) - 1))"
cores=($(echo "$allowed" | tr , '\n' | awk -F- '{ for (core = $1; core <= $NF; core++) print core }'))
for slot in $(seq 0 $((${WORKERS:-${#cores[@]}} - 1))); do # the sweeps share a folder
  core="${cores[slot % ${#cores[@]}]}"
  bound="$(command -v taskset > /dev/null && echo "taskset -c $core" || true)"
  $bound python scripts/sweep.py --workers 1 --runs-dir "${RUNS:-runs/atari_minutes}" "$@" --jobs - <<< "$jobs" &
done
status=0
for sweep in $(jobs -p); do wait "$sweep" || status=$?; done
exit "$status"
