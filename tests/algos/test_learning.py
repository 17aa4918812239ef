"""Short real learning: what the probe's toys are too easy for. dqn.py's is left to the probe: it takes longer."""

import pytest
from conftest import load

PENDULUM = {  # not left to the defaults, which are chosen for other tasks
    "num_steps": 64,
    "num_minibatches": 8,
    "update_epochs": 10,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "activation": "SiLU",
    "init_std": 1.0,
    "norm_adv": True,
    "vf_coef": 0.5,
    "total_timesteps": 200_000,
    "eval_episodes": 50,
}
TASKS = [
    (
        "ppo_continuous",
        "Pendulum-v1",
        PENDULUM,
        -220,
    ),  # ten runs: -146 to -172; a random policy: about -1200
    ("ppo", "CartPole-v1", {"total_timesteps": 100_000}, 450),
    ("reinforce", "CartPole-v1", {"total_timesteps": 150_000}, 350),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env_id", "flags", "least"), TASKS)
def test_learns(name, env_id, flags, least, tmp_path):
    """Would break: anything that is too small for the other tests to see."""
    algo = load(name)
    summary = algo.train(algo.Args(env_id=env_id, runs_dir=str(tmp_path), **flags))
    assert summary["eval_return_mean"] >= least
