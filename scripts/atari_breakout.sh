#!/usr/bin/env bash
# PPO on Breakout beside stable-baselines3's with the same settings and a constant learning rate, and a copy of
# ppo_atari.py that presses FIRE after every lost life, as stable-baselines3's wrappers do (docs/atari.md).
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
steps="${TIMESTEPS:-200000}"
mkdir -p "$runs/fire"
python - "$runs/fire/fire_after_life.py" <<'PYTHON'
import sys
from pathlib import Path

text = Path("algos/ppo_atari.py").read_text()
changes = (
    ("valid = ~done  # not a reset row", """played = ~done  # not a reset row
            valid = played & ~fires  # the step with FIRE is the wrapper's: neither learned from nor counted"""),
    ("agent.to_env(actions[t])", "np.where(fires, 1, agent.to_env(actions[t]))"),
    ("life_lost = valid & ", "fires = life_lost = played & "),
    ("    done = np.zeros(args.num_envs, bool)\n", """    done = np.zeros(args.num_envs, bool)
    fires = np.zeros(args.num_envs, bool)\n"""),
)
for old, new in changes:
    assert text.count(old) == 1, f"algos/ppo_atari.py has changed: {old}"
    text = text.replace(old, new)
Path(sys.argv[1]).write_text(text)
PYTHON
python scripts/sweep.py --scripts algos/ppo_atari.py "$runs/fire/fire_after_life.py" --env-ids BreakoutNoFrameskip-v4 \
  --seeds ${SEEDS:-1-3} --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" -- \
  --total-timesteps "$steps" --no-anneal-lr --no-clip-vloss --torch-threads 1
python scripts/sweep.py --scripts benchmarks/sb3_atari.py --env-ids BreakoutNoFrameskip-v4 \
  --seeds ${SEEDS:-1-3} --workers "${WORKERS:-$(nproc)}" --runs-dir "$runs" "$@" -- \
  --total-timesteps "$steps" --schedule-timesteps 1000000000
