#!/usr/bin/env bash
# The runs of docs/rpo.md. By default those of its first table and of its entropy control, 3 to 5 hours on two cores.
# PARTS="tasks later" trains two parts, PARTS=all all of them in about 23 hours, and SEEDS=1 STEPS=20000 is a test of a few
# minutes. The entropy control is the part `fixed`: the standard deviation of the action keeps its initial value, at an
# entropy of 1.42 nats, which is close to RPO's final entropy. Not in `all` are
#   long, schedule, small    the paper's 8M steps on two tasks, the notes' walker, and an alpha of 0.01 on three tasks;
#                            they take less time with --seeds-per-process 5, or 10
#   paper, first_defaults    older parts: PPO and RPO with the paper's settings; both with the first defaults of these
#                            files, alphas and distributions
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"

published="--num-envs 1 --num-steps 2048 --num-minibatches 32 --update-epochs 10 --learning-rate 3e-4 --gamma 0.99"
published="$published --clip-vloss --activation Tanh --init-std 1 --norm-adv --vf-coef 0.5 --device ${DEVICE:-auto}"
paper="$published --env-backend gymnasium" # the backend of the first runs
ppo="--scripts algos/ppo_continuous.py" rpo="--scripts algos/rpo_continuous.py"
both="$ppo algos/rpo_continuous.py"
limits="--grid bootstrap-truncation=True,False" bonuses="--grid ent-coef=0,0.01,0.05"
pendulum="--env-ids Pendulum-v1 --seeds ${SEEDS:-1-10}"
walker="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-5}"
# from CleanRL's table with alpha 0.5: three tasks with a large gain of RPO (one per robot, no humanoid), three with a loss
tasks="--env-ids HopperStand-v1 FingerTurnHard-v1 WalkerRun-v1 Ant-v5 Reacher-v5 Pusher-v5 --seeds ${SEEDS:-1-5}"
steps() { echo "--total-timesteps ${STEPS:-$1}"; }

first() { # the cells of the first table, which are a part of pendulum()
  local heavy="$limits --grid ent-coef=0.05"
  echo "$both $pendulum --tag paper $limits -- $(steps 500000) $paper"
  echo "$ppo $pendulum --tag paper $heavy -- $(steps 500000) $paper"
  echo "$both $pendulum --tag defaults $limits -- $(steps 400000) --device ${DEVICE:-auto}"
  echo "$ppo $pendulum --tag defaults $heavy -- $(steps 400000) --device ${DEVICE:-auto}"
}
pendulum() { # algorithm x time limit x entropy coefficient, with two settings
  echo "$both $pendulum --tag paper $limits $bonuses -- $(steps 500000) $paper"
  echo "$both $pendulum --tag defaults $limits $bonuses -- $(steps 400000) --device ${DEVICE:-auto}"
}
standardised() { # the defaults with standardised advantages, as in the paper's settings
  local cell="$pendulum --tag defaults-norm-adv" flags="$(steps 400000) --norm-adv --device ${DEVICE:-auto}"
  echo "$ppo $cell $limits --grid ent-coef=0,0.05 -- $flags"
  echo "$rpo $cell --grid bootstrap-truncation=False -- $flags"
}
discount() { # the defaults with the discount factor of the paper's settings
  echo "$both $pendulum --tag defaults-gamma --grid bootstrap-truncation=False -- \
    $(steps 400000) --gamma 0.99 --device ${DEVICE:-auto}"
}
together() { # standardised() and discount() together
  local cell="$pendulum --tag defaults-both" flags="$(steps 400000) --norm-adv --gamma 0.99 --device ${DEVICE:-auto}"
  echo "$ppo $cell $limits -- $flags"
  echo "$ppo $cell --grid bootstrap-truncation=False --grid ent-coef=0.05 -- $flags"
  echo "$rpo $cell --grid bootstrap-truncation=False -- $flags"
}
short() { # the paper's settings with many environments and short rollouts, for the same number of steps
  local cell="$pendulum --tag paper-short --grid bootstrap-truncation=False"
  local flags="$(steps 500000) $paper --num-envs 64 --num-steps 32"
  echo "$rpo $cell -- $flags"
  echo "$ppo $cell --grid ent-coef=0,0.05 -- $flags"
}
three() { # together() with clipped values, as in the paper's settings
  local cell="$pendulum --tag defaults-three --grid bootstrap-truncation=False"
  echo "$both $cell -- $(steps 400000) --norm-adv --gamma 0.99 --clip-vloss --device ${DEVICE:-auto}"
}
clipped() { # the defaults with clipped values, and the paper's settings without
  local cell="$pendulum --grid bootstrap-truncation=False" flags="$(steps 400000) --clip-vloss --device ${DEVICE:-auto}"
  echo "$both $cell --tag defaults-clip -- $flags"
  flags="$(steps 500000) ${paper/--clip-vloss/--no-clip-vloss}"
  echo "$ppo $cell --tag paper-short-open -- $flags --num-envs 64 --num-steps 32"
  echo "$rpo $cell --tag paper-open -- $flags"
  echo "$ppo $cell --tag paper-open --grid ent-coef=0.05 -- $flags"
}
wide() { # a normal policy with the initial standard deviation of a Laplace policy with scale 1
  local flags="$(steps 500000) ${paper/--init-std 1 /--init-std 1.414 }"
  echo "$ppo $pendulum --tag paper-wide --grid bootstrap-truncation=False -- $flags"
}
fixed() {
  python scripts/plainrl_tools/edits.py fixed_scale "$runs/patched"
  echo "--scripts '$runs/patched/fixed_scale.py' $pendulum --tag paper $limits -- $(steps 500000) $paper"
}
robust() { # the defaults on BipedalWalker, whose agents benchmarks/studies/rpo/walk.py then disturbs
  python scripts/plainrl_tools/edits.py noisy_actions "$runs/patched"
  python scripts/plainrl_tools/edits.py fixed_scale "$runs/patched"
  local cell="--env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-10} --tag robust"
  local flags="$(steps 1000000) --device ${DEVICE:-auto}"
  echo "$both $cell -- $flags"
  echo "$ppo $cell --grid ent-coef=0.003 -- $flags"
  echo "--scripts '$runs/patched/fixed_scale.py' $cell -- $flags --init-std 1.5"
  echo "--scripts '$runs/patched/noisy_actions.py' $cell -- $flags"
}
distributions() { # rpo-alpha=0 is PPO
  local grid="--grid bootstrap-truncation=False --grid distribution=laplace,gumbel --grid rpo-alpha=0,0.5"
  echo "$rpo $pendulum --tag paper $grid -- $(steps 500000) $paper"
}
tasks() {
  echo "$both $walker --tag paper $limits -- $(steps 1000000) $paper"
  echo "$ppo $walker --tag paper --grid ent-coef=0.01 -- $(steps 1000000) $paper"
  echo "$both $tasks --tag published -- $(steps 1000000) $published"
  echo "$ppo $tasks --tag published --grid ent-coef=0.01 -- $(steps 1000000) $published"
  python scripts/plainrl_tools/edits.py fixed_scale "$runs/patched"
  local fixed_wide="--scripts '$runs/patched/fixed_scale.py' --env-ids HopperStand-v1 --seeds ${SEEDS:-1-5} --tag published-wide"
  # 9 nats, the final entropy of RPO on this task
  echo "$fixed_wide -- $(steps 1000000) ${published/--init-std 1 /--init-std 2.3 }"
}
later() { # 8M steps, as in the paper
  echo "$both --env-ids BipedalWalker-v3 --seeds ${SEEDS:-1-2} --tag 8M -- $(steps 8000000) $paper"
}
long() { # the same with ten seeds, two controls and EnvPool; ten seeds in a process if --seeds-per-process 10 follows
  python scripts/plainrl_tools/edits.py fixed_scale_seeds "$runs/patched"
  local env_id seeds="--seeds ${SEEDS:-1-10} --tag 8M"
  for env_id in ${TASKS:-BipedalWalker-v3 Pendulum-v1}; do
    echo "--scripts algos/ppo_continuous_seeds.py algos/rpo_continuous_seeds.py --env-ids $env_id $seeds $limits \
      -- $(steps 8000000) $published"
    echo "--scripts algos/ppo_continuous_seeds.py --env-ids $env_id $seeds --grid ent-coef=0.01 -- $(steps 8000000) $published"
    echo "--scripts '$runs/patched/fixed_scale_seeds.py' --env-ids $env_id $seeds -- $(steps 8000000) $published"
  done
}
schedule() { # the notes' walker: alpha falls from 0.7 to 0.05, also with the noise in the rollout; beside constant alpha and PPO
  local rpo="--scripts algos/rpo_continuous_seeds.py $walker"
  echo "--scripts algos/ppo_continuous_seeds.py $walker -- $(steps 1000000)"
  echo "$rpo -- $(steps 1000000)"
  echo "$rpo --tag schedule -- $(steps 1000000) --rpo-alpha 0.7 --rpo-alpha-final 0.05"
  echo "$rpo --tag schedule-rollout -- $(steps 1000000) --rpo-alpha 0.7 --rpo-alpha-final 0.05 --rpo-perturb-rollout"
}
small() { # the alpha that CleanRL recommends where 0.5 is behind PPO, beside tasks()
  echo "--scripts algos/rpo_continuous_seeds.py --env-ids Ant-v5 Reacher-v5 Pusher-v5 --seeds ${SEEDS:-1-5} --tag published" \
    "--grid rpo-alpha=0.01 -- $(steps 1000000) $published"
}
paper() { # PPO and RPO with the paper's settings; STEPS=8000000 trains for as long as the paper
  echo "$both --tag paper $limits $pendulum -- $(steps 500000) $paper"
  echo "$both --tag paper $limits $walker -- $(steps 1000000) $paper"
}
first_defaults() { # few large minibatches, the first defaults of these files; alpha and the distribution; rpo-alpha=0 is PPO
  local first="--num-steps 64 --num-minibatches 2 --update-epochs 10 --learning-rate 2e-3 --gamma 0.99 --activation SiLU"
  first="$first --init-std 1 --norm-adv --vf-coef 0.5 --device ${DEVICE:-auto}"
  local alphas="--grid rpo-alpha=0.01,0.1,0.5,1.0,3.0" distributions="--grid distribution=normal,laplace,gumbel"
  echo "$both $limits $pendulum -- $(steps 400000) $first"
  echo "$both $limits $walker -- $(steps 3000000) $first"
  echo "$rpo $pendulum $alphas -- $(steps 400000) $first"
  echo "$rpo $pendulum $distributions -- $(steps 400000) $first"
  echo "$rpo $pendulum --grid rpo-alpha=0 --grid distribution=laplace,gumbel -- $(steps 400000) $first"
  echo "$ppo $walker --tag 1M -- $(steps 1000000) $first"
  echo "$rpo $walker --tag 1M $alphas -- $(steps 1000000) $first"
  echo "$rpo $walker --tag 1M $distributions -- $(steps 1000000) $first"
}

parts="${PARTS:-first short together three fixed}"
if [ "$parts" = all ]; then
  parts="pendulum standardised discount together short three clipped wide fixed robust distributions tasks later"
fi
jobs="$(set -e; for part in $parts; do "$part"; done)" # a patch that does not apply ends the script here
python scripts/sweep.py --workers "${WORKERS:-0}" --runs-dir "$runs" "$@" --jobs - <<< "$jobs"
