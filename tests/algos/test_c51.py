"""C51: the projection of the distribution, its loss and its values, against slow or independent computations."""

import inspect
from dataclasses import asdict

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import C51, load, tiny
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

c51 = load("c51")
atari = load("c51_atari")


def project_slowly(reward, terminal, probs, atoms, gamma):
    """One transition, by Algorithm 1 of the paper: each atom is moved, its probability split between two neighbours."""
    spacing = atoms[1] - atoms[0]
    target = np.zeros(len(atoms))
    for atom, prob in zip(atoms, probs):
        moved = min(max(reward + gamma * (1 - terminal) * atom, atoms[0]), atoms[-1])
        position = (moved - atoms[0]) / spacing
        lower = int(np.floor(position))
        if lower == position:
            target[lower] += prob
        else:
            target[lower] += prob * (lower + 1 - position)
            target[lower + 1] += prob * (position - lower)
    return target


@pytest.mark.parametrize(
    ("v_min", "v_max", "n_atoms"), [(0.0, 100.0, 101), (-10.0, 10.0, 51), (-3.0, 1.0, 2)]
)
def test_projection_against_the_algorithm(v_min, v_max, n_atoms):
    """Would break: returns outside of the atoms that are lost, an atom that is hit exactly and counted twice or not."""
    rng = np.random.default_rng(1)
    size = 200
    reward = rng.normal(0, v_max - v_min, size)
    reward[:50] = rng.integers(-2, 3, 50)
    terminal = (rng.random(size) < 0.3).astype(float)
    next_probs = rng.dirichlet(np.ones(n_atoms), (size, 3))
    next_action = rng.integers(3, size=size)
    atoms = torch.linspace(v_min, v_max, n_atoms, dtype=torch.float64)
    tensors = (torch.from_numpy(array) for array in (reward, terminal, next_probs, next_action))
    target = c51.td_target(*tensors, atoms, 0.9).numpy()
    chosen = next_probs[np.arange(size), next_action]
    slow = [project_slowly(*row, atoms.numpy(), 0.9) for row in zip(reward, terminal, chosen)]
    np.testing.assert_allclose(target, slow, atol=1e-12)
    np.testing.assert_allclose(target.sum(-1), 1)


def test_nan_in_a_reward_reaches_the_loss():
    """check_finite() then says what is wrong. Would break: an index that a NaN makes, and an IndexError."""
    reward = torch.tensor([float("nan"), 0.5])
    next_probs, atoms = torch.full((2, 1, 5), 0.2), torch.linspace(0, 1, 5)
    target = c51.td_target(reward, torch.zeros(2), next_probs, torch.tensor([0, 0]), atoms, 0.9)
    assert target.isnan().any(1).tolist() == [True, False]


@pytest.mark.parametrize("function", ["td_target", "dqn_loss", "make_optimizer"])
def test_atari_has_the_same_projection_and_loss(function):
    """The tests above and below are of c51.py. Would break: a mistake in c51_atari.py alone."""
    one, other = (inspect.getsource(getattr(module, function)) for module in (c51, atari))
    assert one == other


def test_optimizer():
    """Would break: an epsilon or a learning rate that is not the paper's or that of the flags."""
    args = c51.Args(batch_size=32, learning_rate=3e-4)
    (group,) = c51.make_optimizer(torch.nn.Linear(2, 2), args).param_groups
    assert (group["eps"], group["lr"], group["betas"]) == (0.01 / 32, 3e-4, (0.9, 0.999))


def test_atari_network():
    """Would break: probabilities that do not sum to 1 for each action, values that are not their means."""
    args = atari.Args(n_atoms=5, v_min=-1.0, v_max=3.0)
    agent = atari.Agent(gym.spaces.Discrete(3), args, "float32")
    obs = torch.randint(256, (2, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        logits = agent.head(agent.network(obs / 255)).reshape(2, 3, 5)
        probs = logits.exp() / logits.exp().sum(2, keepdim=True)
        torch.testing.assert_close(agent.log_probs(obs).exp(), probs)
        torch.testing.assert_close(agent(obs), probs @ torch.tensor([-1.0, 0, 1, 2, 3]))


class OneDevice(TorchDispatchMode):
    """Fails if an operation makes a tensor on another device than "meta"."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                assert tensor.device.type == "meta", function
        return result


def test_loss_stays_on_the_device():
    """Would break: a tensor that is made on the CPU, so that each update waits for its copy to the GPU."""
    args = c51.Args(n_atoms=5)
    agents = [c51.Agent(3, gym.spaces.Discrete(4), args).to("meta") for _ in range(2)]
    with torch.device("meta"):
        batch = {
            "obs": torch.ones(8, 3),
            "next_obs": torch.ones(8, 3),
            "action": torch.ones(8, dtype=torch.int64),
            "reward": torch.ones(8),
            "terminal": torch.ones(8),
        }
    with OneDevice():
        loss, _ = c51.dqn_loss(*agents, args, **batch)
    assert loss.shape == ()


@pytest.mark.parametrize("double_dqn", [False, True])
def test_loss(double_dqn):
    """The cross-entropy, sample by sample. Would break: another action's distribution, the next action chosen by the
    wrong network, a gradient through the target."""
    torch.manual_seed(1)
    args = c51.Args(double_dqn=double_dqn, n_atoms=5, v_min=-1.0, v_max=1.0)
    agents = [c51.Agent(3, gym.spaces.Discrete(4), args) for _ in range(2)]
    agent, target_agent = agents
    size = 64
    batch = {
        "obs": torch.randn(size, 3),
        "next_obs": torch.randn(size, 3),
        "action": torch.randint(4, (size,)),
        "reward": torch.randn(size),
        "terminal": (torch.rand(size) < 0.3).float(),
    }
    loss, metrics = c51.dqn_loss(agent, target_agent, args, **batch)
    loss.backward()
    assert all(weight.grad is None for weight in target_agent.parameters())

    atoms = torch.linspace(-1, 1, 5)

    def distribution(network, obs):
        return network.network(obs).reshape(4, 5).softmax(-1).detach()

    entropies, values = [], []
    chosen_by_others = 0
    for i in range(size):
        own, target = (distribution(network, batch["next_obs"][i]) for network in agents)
        greedy = [int((probs @ atoms).argmax()) for probs in (own, target)]
        chosen_by_others += greedy[0] != greedy[1]
        probs = target[greedy[0] if double_dqn else greedy[1]]
        numbers = batch["reward"][i].item(), batch["terminal"][i].item(), probs.numpy()
        wanted = project_slowly(*numbers, atoms.numpy(), args.gamma)
        predicted = distribution(agent, batch["obs"][i])[batch["action"][i]]
        entropies.append(-(wanted * predicted.log().numpy()).sum())
        values.append(float(predicted @ atoms))
    assert chosen_by_others > 5  # else the two kinds of choice would look alike
    assert loss.item() == pytest.approx(np.mean(entropies), rel=1e-5)
    assert metrics["losses/q_values"].item() == pytest.approx(np.mean(values), rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"n_atoms": 1}, "--n-atoms 1 must be at least 2"),
        ({"v_min": 1.0, "v_max": 1.0}, "--v-min 1.0 must be below --v-max 1.0"),
        ({"v_max": float("nan")}, "--v-max nan must be a finite number"),
    ],
)
def test_bad_atoms(flags, message):
    with pytest.raises(ValueError, match=message):
        c51.Args(**flags)


@pytest.mark.parametrize("name", C51)
def test_resume_keeps_the_atoms(name):
    """Would break: another number that is refused only as weights that do not fit; returns whose learned probabilities
    belong to others, silently."""
    algo = load(name)
    args = algo.Args()
    saved = {"global_step": 1, "env_id": args.env_id, "args": asdict(args)}
    saved["total_timesteps"] = args.total_timesteps
    algo.check_resume(args, saved)
    with pytest.raises(SystemExit, match=f"n_atoms must stay {args.n_atoms}"):
        algo.check_resume(algo.Args(n_atoms=7), saved)
    with pytest.raises(SystemExit, match=f"v_max must stay {args.v_max}"):
        algo.check_resume(algo.Args(v_max=args.v_max + 1), saved)


@pytest.mark.parametrize(
    ("v_min", "v_max", "reward", "gamma", "said"),
    [
        (0.0, 100.0, 1.0, 0.99, ""),  # CartPole-v1
        (
            0.0,
            100.0,
            -1.0,
            0.99,
            "near -99.34 are outside --v-min 0.0 and --v-max 100.0",
        ),  # Acrobot-v1
        (-100.0, 0.0, -1.0, 0.99, ""),
        (0.0, 100.0, 1.0, 1.0, "near 500 are outside --v-min 0.0 and --v-max 100.0"),
    ],
)
def test_limits_that_do_not_fit_the_task(v_min, v_max, reward, gamma, said, capsys):
    """Episodes of 500 steps. Would break: a run in which every target is the nearest atom, and not a word."""
    args = c51.Args(v_min=v_min, v_max=v_max, gamma=gamma)
    c51.warn_of_limits(args, [(500 * reward, 500)], 1)
    assert said in capsys.readouterr().err if said else capsys.readouterr().err == ""
    c51.warn_of_limits(args, [(500 * reward, 500)], 2)
    assert capsys.readouterr().err == ""


def test_limits_are_looked_at_once_in_a_run(tmp_path, capsys, registered):
    """Would break: a warning that training never gives, or gives in each iteration."""
    flags = {"v_min": -2.0, "v_max": -1.0, "eval_frequency": 20}  # the toy pays positive rewards
    env_id = registered("Limits-v0", lambda: toy_envs.WithChoices(toy_envs.Counter()))
    c51.train(tiny(c51, tmp_path, env_id=env_id, total_timesteps=200, **flags))
    assert capsys.readouterr().err.count("are outside --v-min -2.0 and --v-max -1.0") == 1
