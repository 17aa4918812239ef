"""ppo_continuous_seeds.py: each seed is a run of ppo_continuous.py, whatever the others do."""

import json
from functools import partial
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import SEEDS, load, read_checkpoint, scalars, tiny

PARENT = {name: name.removesuffix("_seeds") for name in SEEDS}  # trains a single seed
FLAGS = [
    {},
    {"norm_adv": True, "clip_vloss": True, "ent_coef": 0.01},
    {"norm_obs": False, "norm_reward": False, "bootstrap_truncation": False, "anneal_lr": False},
    {"env_id": "InvertedPendulum-v5", "env_backend": "envpool"},
]


@pytest.fixture(params=SEEDS)
def name(request):
    return request.param


def flags_of(number: int) -> dict:
    """Episodes of Uneven-v0 have other lengths in each environment, so the seeds' steps differ."""
    common = {"num_envs": 3, "num_steps": 8, "num_minibatches": 4, "total_timesteps": 140}
    common |= {"env_id": "Uneven-v0", "eval_frequency": 70, "checkpoint_frequency": 50}
    return common | FLAGS[number]


def of_file(algo, flags: dict) -> dict:
    """The flags, and, in one of the sets, those that RPO alone has."""
    if hasattr(algo.Args, "rpo_alpha") and flags.get("norm_adv"):
        return flags | {"rpo_alpha_final": 0.1, "rpo_perturb_rollout": True}
    return flags


def folders(path) -> dict:
    """{seed: run folder}"""
    found = {}
    for folder in path.glob("runs/*"):
        found[json.loads((folder / "config.json").read_text())["seed"]] = folder
    return found


def same_run(folder, other) -> None:
    """Two run folders hold the same weights, log and returns, up to rounding."""
    saved, expected = read_checkpoint(folder), read_checkpoint(other)
    assert saved["global_step"] == expected["global_step"]
    assert saved["agent"].keys() == expected["agent"].keys()
    for key, value in expected["agent"].items():
        torch.testing.assert_close(saved["agent"][key], value, rtol=1e-4, atol=1e-5)
    log, expected_log = scalars(folder), scalars(other)
    assert log.keys() == expected_log.keys()
    for key in log.keys() - {"charts/SPS"}:
        np.testing.assert_allclose(log[key], expected_log[key], rtol=1e-3, atol=1e-4)
    summary, expected = (json.loads((one / "summary.json").read_text()) for one in (folder, other))
    assert summary.keys() == expected.keys()
    for key in ("eval_returns", "train_return_last100"):
        np.testing.assert_allclose(summary[key], expected[key], rtol=1e-3)


@pytest.mark.parametrize("number", range(len(FLAGS)))
def test_each_seed_is_a_single_run(name, number, tmp_path):
    """Would break: anything that one seed has from another: random numbers, statistics, mean losses, the
    rate, the norm of the gradient, steps, episodes; a seed that goes on learning after its last step."""
    algo, parent = load(name), load(PARENT[name])
    flags = of_file(algo, flags_of(number))
    algo.train(tiny(algo, tmp_path / "seeds", seed=4, num_seeds=3, **flags))
    for seed in (4, 5, 6):
        parent.train(tiny(parent, tmp_path / "single", seed=seed, **flags))
    several, single = folders(tmp_path / "seeds"), folders(tmp_path / "single")
    assert several.keys() == single.keys() == {4, 5, 6}
    for seed in several:
        same_run(several[seed], single[seed])
        assert (several[seed] / "best.pt").exists()


def test_resume_of_several(name, tmp_path):
    """Would break: moments, statistics or numbers of another seed after --resume; a pattern that takes one."""
    algo, parent = load(name), load(PARENT[name])
    flags = flags_of(0)
    algo.train(tiny(algo, tmp_path / "seeds", num_seeds=2, **flags))
    pattern = f"{tmp_path}/seeds/runs/*"
    more = flags | {"total_timesteps": 250, "resume": pattern}
    algo.train(tiny(algo, tmp_path / "seeds", **more))
    several = folders(tmp_path / "seeds")
    for seed, folder in several.items():
        parent.train(tiny(parent, tmp_path / "single", seed=seed, **flags))
        single = folders(tmp_path / "single")[seed]
        parent.train(tiny(parent, tmp_path / "single", seed=seed, **more | {"resume": str(single)}))
        same_run(folder, single)
    assert several.keys() == {1, 2}


def test_stopped_runs_continue(name, tmp_path, capsys):
    """Would break: a stop that saves some seeds only, or does not say how to continue."""
    algo = load(name)
    flags = flags_of(0) | {"checkpoint_frequency": 1000}
    with pytest.raises(SystemExit) as stopped:
        algo.train(tiny(algo, tmp_path, num_seeds=2, **flags), signals=[15])
    assert stopped.value.code == 128 + 15
    said = capsys.readouterr().err
    for folder in folders(tmp_path).values():
        assert str(folder) in said
        assert read_checkpoint(folder)["global_step"] > 0
        assert not (folder / "summary.json").exists()
    algo.train(tiny(algo, tmp_path, **flags | {"resume": f"{tmp_path}/runs/*"}))
    assert all((folder / "summary.json").exists() for folder in folders(tmp_path).values())


@pytest.mark.parametrize("largest_norm", [0.5, 1e9])
def test_adam(name, largest_norm):
    """Against PyTorch's Adam and clip_grad_norm_. Would break: a norm over all seeds, another epsilon, one rate."""
    algo = load(name)
    torch.manual_seed(1)
    first = torch.randn(3, 4, 5, dtype=torch.float64)
    second = torch.randn(3, 1, 2, dtype=torch.float64)
    rates = torch.tensor([[0.1], [0.01], [0.0]], dtype=torch.float64)

    class Two(torch.nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first = torch.nn.Parameter(first.clone())
            self.second = torch.nn.Parameter(second.clone())

    def loss(module, scale):
        return scale * ((module.first**2).sum() + (module.second**4).sum())

    together = Two(first, second)
    optimizer = algo.Adam(together, eps=1e-5)
    single = [Two(first[k], second[k]) for k in range(3)]
    adams = [
        torch.optim.Adam(one.parameters(), lr=rate.item(), eps=1e-5)
        for one, rate in zip(single, rates)
    ]
    for step in range(1, 6):
        optimizer.step(loss(together, step), rates, largest_norm)
        for one, adam in zip(single, adams):
            adam.zero_grad()
            loss(one, step).backward()
            torch.nn.utils.clip_grad_norm_(one.parameters(), largest_norm)
            adam.step()
    for k, one in enumerate(single):
        torch.testing.assert_close(together.first[k], one.first, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(together.second[k], one.second, rtol=1e-9, atol=1e-9)
    assert torch.equal(together.first[2], first[2])  # the rate is 0
    before = together.first.detach().clone()
    not_a_number = torch.tensor([1.0, 1.0, float("nan")], dtype=torch.float64)
    scale = not_a_number[:, None, None]
    both = (scale * together.first**2).sum() + (scale * together.second**4).sum()
    optimizer.step(both, rates, largest_norm)
    assert torch.equal(together.first[2], first[2])
    assert not torch.equal(together.first[1], before[1]) and together.first.isfinite().all()


def test_normalised_advantages_do_not_mix(name):
    """Would break: a mean or a standard deviation over the samples of all seeds."""
    algo = load(name)
    args = algo.Args(norm_adv=True, clip_vloss=True, ent_coef=0.01)
    space = gym.spaces.Box(-1, 1, (2,), np.float32)
    gradients = []
    for change in (0, 100):
        torch.manual_seed(1)
        runs = []
        for seed in (1, 2):
            generator = torch.Generator().manual_seed(seed)
            runs.append(SimpleNamespace(agent=algo.Agent(3, space, args), generator=generator))
        agents = algo.Agents(runs)
        x, action = torch.randn(2, 8, 3), torch.randn(2, 8, 2)
        logprob, advantage, target, value = torch.randn(4, 2, 8)
        advantage[0] += change * torch.arange(8)
        loss, _ = algo.ppo_loss(agents, args, x, action, logprob, advantage, target, value)
        found = torch.autograd.grad(loss, list(agents.parameters()))
        gradients.append([gradient[1] for gradient in found])
    for one, two in zip(*gradients):
        assert torch.equal(one, two)


def test_flags_of_one_seed(name):
    """Would break: updates that end for all seeds at once, a W&B run that mixes seeds."""
    algo = load(name)
    for flag in ({"target_kl": 0.01}, {"track": True}):
        with pytest.raises(ValueError, match="takes one seed; use --num-seeds 1"):
            algo.Args(num_seeds=2, **flag)
        algo.Args(num_seeds=1, **flag)
    with pytest.raises(ValueError, match="a folder is one seed"):
        algo.Args(num_seeds=2, resume="runs/*")
    with pytest.raises(ValueError, match="Lower --seed"):
        algo.Args(num_seeds=2, seed=2**32 - 1)


def test_seed_that_is_not_finite_is_named(name, tmp_path, monkeypatch):
    """Would break: a message that does not say which seed has failed."""
    algo = load(name)
    update = algo.update

    def spoiled(agents, optimizer, *args):
        found = update(agents, optimizer, *args)
        optimizer.weights[1, 0] = float("nan")
        return found

    monkeypatch.setattr(algo, "update", spoiled)
    with pytest.raises(SystemExit, match="weights of seed 2 before step"):
        algo.train(tiny(algo, tmp_path, num_seeds=2, **flags_of(0)))


def test_too_large_rewards_are_seen(name, tmp_path):
    """Would break: a check of rewards after they are scaled and clipped."""
    algo = load(name)
    algo.WRAPPERS = (partial(gym.wrappers.TransformReward, func=lambda reward: 1e16 * reward),)
    with pytest.raises(SystemExit, match="rewards of seed 1, environment 0, before step"):
        algo.train(tiny(algo, tmp_path, num_seeds=2, **flags_of(0)))


def test_patterns_that_do_not_fit(name, tmp_path, capsys):
    """Would break: settings of one run that another run takes over, a finished run that stops the others."""
    algo = load(name)
    flags = flags_of(0) | {"eval_frequency": 0}
    pattern = f"{tmp_path}/runs/*"
    algo.train(tiny(algo, tmp_path, seed=1, **flags))
    algo.train(tiny(algo, tmp_path, seed=2, **flags))
    with pytest.raises(SystemExit, match="all have ended; raise --total-timesteps above 140"):
        algo.train(tiny(algo, tmp_path, **flags | {"resume": pattern}))
    longer = flags | {"total_timesteps": 200}
    runs = folders(tmp_path)
    only_first = f"{tmp_path}/runs/*__1__*"  # a pattern that matches one folder
    algo.train(tiny(algo, tmp_path, **longer | {"resume": only_first}))
    assert read_checkpoint(runs[1])["global_step"] >= 200
    with pytest.raises(SystemExit, match="total_timesteps is 200 .*, but 140 in"):
        algo.train(tiny(algo, tmp_path, **longer | {"resume": pattern}))
    only_second = f"{tmp_path}/runs/*__2__*"
    for total in (300, 200):
        flags_of_second = flags | {"seed": 2, "total_timesteps": total, "resume": only_second}
        with pytest.raises(SystemExit):
            algo.train(tiny(algo, tmp_path, **flags_of_second), signals=[15])
        if total == 300:
            with pytest.raises(SystemExit, match="total_timesteps is 200 .*, but 300 in"):
                algo.train(tiny(algo, tmp_path, **longer | {"resume": pattern}))
    before = (runs[1] / "checkpoint.pt").read_bytes()
    capsys.readouterr()
    with pytest.raises(SystemExit, match="--seed 7: leave it out"):
        algo.train(tiny(algo, tmp_path, seed=7, **longer | {"resume": pattern}))
    algo.train(tiny(algo, tmp_path, **longer | {"resume": pattern}))
    assert f"{runs[1]} has ended" in capsys.readouterr().err
    assert (runs[1] / "checkpoint.pt").read_bytes() == before
    assert read_checkpoint(runs[2])["global_step"] >= 200
    algo.train(tiny(algo, tmp_path, seed=3, **flags | {"gamma": 0.5}))
    with pytest.raises(SystemExit, match="gamma is .*; narrow the pattern"):
        algo.train(tiny(algo, tmp_path, **longer | {"total_timesteps": 300, "resume": pattern}))
    algo.train(tiny(algo, tmp_path, seed=1, **flags))
    with pytest.raises(SystemExit, match="two folders have seed 1"):
        more = {"total_timesteps": 300, "resume": f"{tmp_path}/runs/*__1__*"}
        algo.train(tiny(algo, tmp_path, **longer | more))
    with pytest.raises(SystemExit, match="take one seed"):
        algo.train(tiny(algo, tmp_path, target_kl=0.01, resume=pattern, **longer))


def test_layer_that_cannot_be_stacked(name):
    """Would break: a layer whose weights all seeds would share, in silence."""
    algo = load(name)
    networks = [torch.nn.Sequential(torch.nn.LayerNorm(3)) for _ in range(2)]
    with pytest.raises(TypeError, match="LayerNorm"):
        algo.Agents.stack(None, networks)


def test_finished_seeds_are_not_saved_again(name, monkeypatch):
    """Would break: a stop that writes the checkpoint of a seed that has ended and only waits for the others."""
    algo = load(name)
    saved = []
    monkeypatch.setattr(algo, "save_seed", lambda run, k, *_: saved.append(k))
    states = [(True, 10, 14), (False, 10, 14), (False, 10, 10), (False, 0, 0)]
    names = ("finished", "saved_step", "global_step")
    runs = [SimpleNamespace(**dict(zip(names, state))) for state in states]
    algo.save_seeds(runs, None, None)
    assert saved == [1, 3]
