#!/usr/bin/env bash
# PPO, RPO (alpha 0.5, its default), RAD and DrAC on the 11 tasks of table 1 of the RPO paper (docs/augmentation.md). The
# paper trains for 8M steps: TIMESTEPS=8000000. TASKS="WalkerWalk-v1" SEEDS=1-3 scripts/augmentation.sh trains a part.
set -euo pipefail
cd "$(dirname "$0")/.."

files="algos/ppo_continuous.py algos/rpo_continuous.py algos/ppo_rad.py algos/ppo_drac.py"
tasks="PendulumSwingup-v1 AcrobotSwingup-v1 FishSwim-v1 WalkerStand-v1 WalkerWalk-v1 WalkerRun-v1"
tasks="$tasks QuadrupedWalk-v1 QuadrupedRun-v1 QuadrupedEscape-v1 HumanoidStand-v1 HumanoidRun-v1"

python scripts/sweep.py --workers "${WORKERS:-$(nproc)}" --device "${DEVICE:-auto}" --runs-dir "${RUNS:-runs}" \
  "$@" --jobs - <<JOBS
--scripts $files --env-ids ${TASKS:-$tasks} --seeds ${SEEDS:-1-5} -- --total-timesteps ${TIMESTEPS:-1000000}
JOBS
