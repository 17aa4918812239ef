"""Trains the agents in models/, which scripts/enjoy.py plays:

    python benchmarks/make_models.py                    # all of them: half an hour of one core
    python benchmarks/make_models.py CartPole-v1        # one

Each is a run with seed 1 and the flags below; none was chosen among several. models/NAME/checkpoint.pt holds weights
and flags, without optimizer and target network. models/README.md lists what the agents score.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
MODELS = {  # name: file and flags
    "CartPole-v1": "ppo --env-id CartPole-v1",
    "CartPole-v1-dqn": "dqn --env-id CartPole-v1",
    "CartPole-v1-pqn": "pqn --env-id CartPole-v1",
    "CartPole-v1-reinforce": "reinforce --env-id CartPole-v1",
    "LunarLander-v3": "ppo --env-id LunarLander-v3 --total-timesteps 1000000 --gamma 0.999 --gae-lambda 0.98 "
    "--num-minibatches 8",
    "LunarLanderContinuous-v3": "ppo_continuous --env-id LunarLanderContinuous-v3 --total-timesteps 1000000",
    "BipedalWalker-v3": "ppo_continuous --env-id BipedalWalker-v3",
    "BipedalWalker-v3-rpo": "rpo_continuous --env-id BipedalWalker-v3",
    "HalfCheetah-v5": "ppo_continuous --env-id HalfCheetah-v5",
    "Hopper-v5-trpo": "trpo_continuous --env-id Hopper-v5",
    "Pendulum-v1-td3": "td3_continuous --env-id Pendulum-v1 --total-timesteps 20000",
    "RecallCue-v0": "ppo_lstm --env-id envs:RecallCue-v0 --total-timesteps 100000",
    "Switchboard-v0": "ppo_multidiscrete --env-id envs:Switchboard-v0",
}
HEAD = """# Trained agents

To look at before you train. Each is one run with seed 1 of the file in `algos/`, made by
`python benchmarks/make_models.py`:

```bash
python scripts/enjoy.py models/BipedalWalker-v3                 # opens a window
python scripts/enjoy.py models/HalfCheetah-v5 --video run.mp4   # writes a video
```

`RecallCue-v0` and `Switchboard-v0` have no images: add `--no-render`.

Evaluation: mean and standard deviation of 100 episodes.

| model | file | steps | evaluation | commit |
|---|---|--:|--:|---|
"""


def train(name: str) -> None:
    """Train a model and write models/NAME."""
    script, *flags = MODELS[name].split()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, f"algos/{script}.py", *flags, "--seed", "1", "--device", "cpu"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # for envs:NAME
        subprocess.run([*command, "--runs-dir", folder], cwd=ROOT, env=environment, check=True)
        (run,) = Path(folder).iterdir()
        checkpoint = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
        summary = json.loads((run / "summary.json").read_text())
    unused = ("optimizer", "target_agent")
    kept = {key: value for key, value in checkpoint.items() if not key.startswith(unused)}
    kept["args"]["runs_dir"] = "runs"
    path = ROOT / "models" / name
    path.mkdir(parents=True, exist_ok=True)
    torch.save(kept, path / "checkpoint.pt")
    names = "algo env_id seed global_step commit eval_episodes eval_return_mean eval_return_std"
    result = {key: summary[key] for key in names.split()}
    (path / "summary.json").write_text(json.dumps(result, indent=2) + "\n")


def write_readme() -> None:
    rows = []
    for name in MODELS:
        summary = ROOT / "models" / name / "summary.json"
        if not summary.exists():
            continue
        result = json.loads(summary.read_text())
        score = f"{result['eval_return_mean']:.1f} ± {result['eval_return_std']:.1f}"
        file = f"[`{result['algo']}.py`](../algos/{result['algo']}.py)"
        rows.append(
            f"| `{name}` | {file} | {result['global_step']:,} | {score} | {result['commit']} |\n"
        )
    (ROOT / "models/README.md").write_text(HEAD + "".join(rows))


def main(*names: str) -> None:
    unknown = set(names) - set(MODELS)
    if unknown:
        sys.exit(f"{' '.join(sorted(unknown))}: not among {', '.join(MODELS)}")
    for name in names or MODELS:
        print(name, flush=True)
        train(name)
    write_readme()


if __name__ == "__main__":
    main(*sys.argv[1:])
