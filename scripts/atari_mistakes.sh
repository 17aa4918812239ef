#!/usr/bin/env bash
# PPO on Pong as it is, and with one of the notes' mistakes each (docs/atari.md): copies of ppo_atari.py with a line
# changed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs="${RUNS:-runs}"
copies="$runs/mistakes"  # in here the copies, one file a mistake: its name is that of the experiment
mkdir -p "$copies"
rm -f "$copies"/*.py

mistake() {  # name, text of ppo_atari.py, the text in its place
  python - "$copies/$1.py" "$2" "$3" <<'PYTHON'
import sys
from pathlib import Path

path, old, new = sys.argv[1:]
text = Path("algos/ppo_atari.py").read_text()
assert text.count(old) == 1, f"algos/ppo_atari.py has changed: {old}"
Path(path).write_text(text.replace(old, new))
PYTHON
}
mistake done_cleared 'storage[:, t] = reward, terminated, terminated | truncated, valid' \
  'storage[:, t] = reward, np.zeros_like(done), np.zeros_like(done), valid'
mistake clip_around_return 'value_error = torch.max(value_error, (clipped_value - target) ** 2)' \
  'value_error = (value - target).clamp(-args.clip_coef, args.clip_coef) ** 2'
mistake no_frame_skip 'game["frameskip"] = 4' 'game["frameskip"] = 1'

python scripts/sweep.py --scripts algos/ppo_atari.py "$copies"/*.py --env-ids PongNoFrameskip-v4 --seeds ${SEEDS:-1-3} \
  --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "$runs" "$@" -- \
  --total-timesteps "${TIMESTEPS:-2500000}" --torch-threads 1
