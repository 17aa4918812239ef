"""Does it help that the environments of a rollout are in different phases of their episodes?

StaggeredPendulum-v0 and StaggeredHalfCheetah-v0 cut the first training episode of each environment at a step of its
own, uniform over the episode's length, so that lock-step tasks show every phase in a rollout. Evaluations are whole.

    PYTHONPATH=benchmarks python scripts/sweep.py --scripts algos/ppo_continuous.py --seeds 1-10 \
        --env-ids stagger:StaggeredPendulum-v0 stagger:LockstepPendulum-v0 -- --total-timesteps 400000

The same with HalfCheetah for Pendulum, seeds 1-5 and 1,000,000 steps. After `python scripts/plot.py runs --export
benchmarks/results/stagger.csv`, `python benchmarks/stagger.py` prints the paired difference.
"""

import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

ROOT = Path(__file__).resolve().parents[1]

EVALUATION_SEED = 2**30  # the files seed evaluations from here on, training below


class CutFirstEpisode(gym.Wrapper):
    """Truncates the episode after a seeded reset of training, at a step uniform in [1, length]."""

    def __init__(self, env: gym.Env, length: int):
        super().__init__(env)
        self.length, self.left = length, length

    def reset(self, *, seed=None, options=None):
        self.left = self.length
        if seed is not None and seed < EVALUATION_SEED:
            self.left = int(np.random.default_rng(seed).integers(1, self.length + 1))
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.left -= 1
        return obs, reward, terminated, truncated or self.left == 0, info


def make(env_id: str, length: int, staggered: bool, **kwargs) -> gym.Env:
    env = gym.make(env_id, disable_env_checker=True, **kwargs)
    return CutFirstEpisode(env, length) if staggered else env


for task, env_id, length in (
    ("Pendulum", "Pendulum-v1", 200),
    ("HalfCheetah", "HalfCheetah-v5", 1000),
):
    for word, staggered in (("Staggered", True), ("Lockstep", False)):
        kwargs = {"env_id": env_id, "length": length, "staggered": staggered}
        gym.register(f"{word}{task}-v0", make, kwargs=kwargs, disable_env_checker=True)


def main() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    import compare
    import plot
    import results

    rows = results.read_csv(ROOT / "benchmarks" / "results" / "stagger.csv")
    for index, row in enumerate(rows):  # the environment's name holds what was done to the task
        word, task = re.fullmatch(r"stagger:(Staggered|Lockstep)(\w+)-v0", row.env_id).groups()
        rows[index] = row._replace(exp_name=word, env_id=task)
    pairs = []
    for score in ("eval_return_mean", "train_return_last100"):
        table = compare.comparison_table(rows, score, plot.Options(()))
        pairs += [pair | {"score": score} for pair in table]
    tested = [pair for pair in pairs if pair["least_p"] < 0.05]
    for pair, p_holm in zip(tested, compare.holm([pair["p"] for pair in tested])):
        pair["holm"] = f"p {pair['p']:.3g}, Holm {p_holm:.3g}"
    for pair in pairs:
        difference = f"{pair['difference']:.1f} [{pair['low']:.1f}, {pair['high']:.1f}]"
        words = f"{pair['exp_name']} - {pair['against']}: {difference}, {pair['test']}"
        print(f"{pair['env_id']}, {pair['score']}: {words}, {pair.get('holm', 'too few to test')}")


if __name__ == "__main__":
    main()
