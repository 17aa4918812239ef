#!/usr/bin/env bash
# The runs of docs/rpo.md's first table and of its control of entropy, by their durations 3 to 5 hours on two cores.
# PARTS=all trains all runs, about 23 hours; PARTS="tasks later" those parts; SEEDS=1 STEPS=20000 checks it in minutes.
# fixed is the control of entropy: the scale of the action stays where it starts, at 1.42 nats, near where RPO ends.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"

published="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
published="$published --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 --device ${DEVICE:-auto}"
paper="$published --env-backend gymnasium" # the backend of the first edition's runs
ppo="--scripts algos/ppo_continuous.py" rpo="--scripts algos/rpo_continuous.py"
both="$ppo algos/rpo_continuous.py"
limits="--grid bootstrap-truncation=True,False" bonuses="--grid ent-coef=0,0.01,0.05"
pendulum="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-10}"
walker="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
# of CleanRL's table, alpha 0.5: three where RPO gained much (one task a robot, no humanoid), three where it lost much
tasks="--env-ids HopperStand-v1 FingerTurnHard-v1 WalkerRun-v1 Ant-v5 Reacher-v5 Pusher-v5 --seeds ${SEEDS:-1-5}"
steps() { echo "--total-timesteps ${STEPS:-$1}"; }

first() { # of pendulum, next, the cells of the first table
  local heavy="$limits --grid ent-coef=0.05"
  echo "$both $pendulum --tag paper $limits -- $(steps 500000) $paper"
  echo "$ppo $pendulum --tag paper $heavy -- $(steps 500000) $paper"
  echo "$both $pendulum --tag defaults $limits -- $(steps 400000) --device ${DEVICE:-auto}"
  echo "$ppo $pendulum --tag defaults $heavy -- $(steps 400000) --device ${DEVICE:-auto}"
}
pendulum() { # algorithm x time limit x entropy bonus, in two settings
  echo "$both $pendulum --tag paper $limits $bonuses -- $(steps 500000) $paper"
  echo "$both $pendulum --tag defaults $limits $bonuses -- $(steps 400000) --device ${DEVICE:-auto}"
}
standardised() { # advantages, as the paper's settings have them and the defaults do not
  local cell="$pendulum --tag defaults-norm-adv" flags="$(steps 400000) --norm-adv --device ${DEVICE:-auto}"
  echo "$ppo $cell $limits --grid ent-coef=0,0.05 -- $flags"
  echo "$rpo $cell --grid bootstrap-truncation=False -- $flags"
}
discount() { # as the paper's settings have it
  echo "$both $pendulum --tag defaults-gamma --grid bootstrap-truncation=False -- \
    $(steps 400000) --gamma 0.99 --device ${DEVICE:-auto}"
}
together() { # both
  local cell="$pendulum --tag defaults-both" flags="$(steps 400000) --norm-adv --gamma 0.99 --device ${DEVICE:-auto}"
  echo "$ppo $cell $limits -- $flags"
  echo "$ppo $cell --grid bootstrap-truncation=False --grid ent-coef=0.05 -- $flags"
  echo "$rpo $cell --grid bootstrap-truncation=False -- $flags"
}
short() { # the paper's settings, with as many steps of many environments
  local cell="$pendulum --tag paper-short --grid bootstrap-truncation=False"
  local flags="$(steps 500000) $paper --num-envs 64 --num-steps 32"
  echo "$rpo $cell -- $flags"
  echo "$ppo $cell --grid ent-coef=0,0.05 -- $flags"
}
three() { # both, and clipped values, as the paper's settings have them
  local cell="$pendulum --tag defaults-three --grid bootstrap-truncation=False"
  echo "$both $cell -- $(steps 400000) --norm-adv --gamma 0.99 --clip-vloss --device ${DEVICE:-auto}"
}
clipped() { # values: in the paper's settings they are, in the defaults not; here the other way round
  local cell="$pendulum --grid bootstrap-truncation=False" flags="$(steps 400000) --clip-vloss --device ${DEVICE:-auto}"
  echo "$both $cell --tag defaults-clip -- $flags"
  flags="$(steps 500000) ${paper/--clip-vloss/--no-clip-vloss}"
  echo "$ppo $cell --tag paper-short-open -- $flags --num-envs 64 --num-steps 32"
  echo "$rpo $cell --tag paper-open -- $flags"
  echo "$ppo $cell --tag paper-open --grid ent-coef=0.05 -- $flags"
}
wide() { # a normal policy with the standard deviation that a Laplace policy of scale 1 begins with
  local flags="$(steps 500000) ${paper/--init-std 1 /--init-std 1.414 }"
  echo "$ppo $pendulum --tag paper-wide --grid bootstrap-truncation=False -- $flags"
}
fixed() {
  bash scripts/patched.sh fixed_scale "$runs/patched"
  echo "--scripts '$runs/patched/fixed_scale.py' $pendulum --tag paper $limits -- $(steps 500000) $paper"
}
robust() { # our defaults on the walker, which benchmarks/walk.py then disturbs
  bash scripts/patched.sh noisy_actions "$runs/patched"
  bash scripts/patched.sh fixed_scale "$runs/patched"
  local cell="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-10} --tag robust"
  local flags="$(steps 1000000) --device ${DEVICE:-auto}"
  echo "$both $cell -- $flags"
  echo "$ppo $cell --grid ent-coef=0.003 -- $flags"
  echo "--scripts '$runs/patched/fixed_scale.py' $cell -- $flags --init-std 1.5"
  echo "--scripts '$runs/patched/noisy_actions.py' $cell -- $flags"
}
distributions() { # alpha 0 is PPO
  local grid="--grid bootstrap-truncation=False --grid distribution=laplace,gumbel --grid rpo-alpha=0,0.5"
  echo "$rpo $pendulum --tag paper $grid -- $(steps 500000) $paper"
}
tasks() {
  echo "$both $walker --tag paper $limits -- $(steps 1000000) $paper"
  echo "$ppo $walker --tag paper --grid ent-coef=0.01 -- $(steps 1000000) $paper"
  echo "$both $tasks --tag published -- $(steps 1000000) $published"
  echo "$ppo $tasks --tag published --grid ent-coef=0.01 -- $(steps 1000000) $published"
  bash scripts/patched.sh fixed_scale "$runs/patched"
  local held="--scripts '$runs/patched/fixed_scale.py' --env-ids HopperStand-v1 --seeds ${SEEDS:-1-5} --tag published-wide"
  echo "$held -- $(steps 1000000) ${published/--init-std 1 /--init-std 2.3 }" # 9 nats, where RPO's end there
}
later() { # the paper's 8M steps
  echo "$both --env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-2} --tag 8M -- $(steps 8000000) $paper"
}

parts="${PARTS:-first short together three fixed}"
if [ "$parts" = all ]; then
  parts="pendulum standardised discount together short three clipped wide fixed robust distributions tasks later"
fi
jobs="$(set -e; for part in $parts; do "$part"; done)" # a patch that does not apply ends it here
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
