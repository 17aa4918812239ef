"""PPO for actions of several components: their distribution, and masks from the environment to the loss."""

import enjoy
import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load, run_folder, spy, tiny
from gymnasium.utils.env_checker import check_env

multi = load("ppo_multidiscrete")
SPACES = {
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 3]),
    "two-dimensional": gym.spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "MultiBinary": gym.spaces.MultiBinary(3),
    "Discrete": gym.spaces.Discrete(4),
}


def make_agent(space, obs_dim: int = 3):
    """An agent whose logits are far from equal."""
    torch.manual_seed(1)
    agent = multi.Agent(obs_dim, space, multi.Args())
    torch.nn.init.normal_(agent.actor[-1].weight)
    return agent


def all_allowed(agent, n: int):
    return torch.ones(n, sum(agent.choices), dtype=torch.bool)


class Masked(gym.Env):
    """Components of 3 and 4 values. The observation shows the mask, and an action that is not allowed is an error.

    Episodes end after 3 to 5 steps; then nothing is allowed."""

    observation_space = gym.spaces.Box(0, 1, (7,), np.float32)
    action_space = gym.spaces.MultiDiscrete([3, 4])

    def show(self):
        self.mask = np.zeros(7, bool)
        if self.left > 0:
            self.mask[self.np_random.choice(3, 2, replace=False)] = True
            self.mask[3 + self.np_random.choice(4, 1)] = True
        return self.mask.astype(np.float32)

    def action_masks(self):
        return self.mask

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 6))
        return self.show(), {}

    def step(self, action):
        if not (self.mask[action[0]] and self.mask[3 + action[1]]):
            raise RuntimeError(f"{action} is not allowed: {self.mask}")
        self.left -= 1
        return self.show(), 1.0, self.left == 0, False, {}


@torch.no_grad()
@pytest.mark.parametrize("name", SPACES)
def test_joint_distribution_by_hand(name):
    """The probability of an action is the product of its components', and the entropy that of all actions together.
    Would break: logits of one component under another, an entropy that is a mean."""
    agent = make_agent(SPACES[name])
    x = torch.randn(5, 3)
    components = [part.softmax(-1) for part in agent.actor(x).split(agent.choices, dim=-1)]
    entropy = torch.zeros(5)
    total = torch.zeros(5)
    for action in np.ndindex(*agent.choices):
        probability = torch.ones(5)
        for component, value in zip(components, action):
            probability = probability * component[:, value]
        given = torch.tensor(action).expand(5, -1)
        _, logprob, found = agent.get_action(x, all_allowed(agent, 5), given)
        assert logprob.exp() == pytest.approx(probability, abs=1e-5)
        total += probability
        entropy -= probability * probability.log()
    assert total == pytest.approx(torch.ones(5), abs=1e-5)
    assert found == pytest.approx(entropy, abs=1e-4)


@pytest.mark.parametrize("name", SPACES)
def test_actions_fit_the_space(name):
    """Would break: the shape of a Discrete action, components in another order than the space's."""
    agent = make_agent(SPACES[name])
    x, mask = torch.randn(50, 3), all_allowed(agent, 50)
    for action in (agent.get_action(x, mask)[0], agent.get_mode(x, mask)):
        for one in agent.to_env(action):
            assert SPACES[name].contains(one), one
    sizes = agent.to_env(agent.get_action(x.repeat(40, 1), mask.repeat(40, 1))[0])
    assert sizes.reshape(2000, -1).max(0).tolist() == [n - 1 for n in agent.choices]


def test_masked_values():
    """Would break: a value that is not allowed and is drawn, that has a gradient, or that counts in the entropy."""
    agent = make_agent(SPACES["MultiDiscrete"])
    mask = torch.tensor([True, True, False, True, False])
    x, masks = torch.randn(1, 3).expand(5000, -1), mask.expand(5000, -1)
    action, logprob, entropy = agent.get_action(x, masks)
    assert set(action[:, 0].tolist()) == {0, 1} and set(action[:, 1].tolist()) == {1}
    logits = agent.actor(x[:1])[0].detach()
    allowed = logits[:2].softmax(-1)
    assert logprob[0].exp().item() == pytest.approx(allowed[action[0, 0]].item())
    assert entropy[0].item() == pytest.approx(-(allowed * allowed.log()).sum().item())
    assert (action[:, 0] == 1).float().mean().item() == pytest.approx(allowed[1].item(), abs=0.03)
    outputs = []
    agent.actor.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    _, logprob, entropy = agent.get_action(x, masks, action)
    loss = (logprob * torch.randn(5000) + 0.1 * entropy).sum()
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert (gradient[:, ~mask] == 0).all() and gradient[:, :2].abs().sum() > 0
    assert gradient.isfinite().all()
    _, logprob, _ = agent.get_action(x[:1], masks[:1], torch.tensor([[0, 0]]))
    assert logprob.item() < -1e7


def test_discrete_actions_are_those_of_ppo(tmp_path):
    """Would break: another number of random draws, another loss than the parent's."""
    states = []
    for algo in (load("ppo"), multi):
        folder = tmp_path / algo.__name__
        summary = algo.train(tiny(algo, folder, env_id="CartPole-v1", num_envs=4))
        saved = torch.load(run_folder(folder) / "checkpoint.pt", weights_only=True)
        states.append((summary["eval_returns"], saved["agent"]))
    (returns, weights), (same_returns, same_weights) = states
    assert returns == same_returns
    assert weights.keys() == same_weights.keys()
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)


def test_masks_from_environment_to_loss(monkeypatch, registered, tmp_path):
    """Training, check and evaluation take allowed actions only, and the loss gets the mask of each observation.
    Would break: a mask that is a step late, the mask of an autoreset step, one that a wrapper hides."""
    batches = []
    spy(monkeypatch, multi, "update", lambda agent, opt, args, batch, fn: batches.append(batch))
    monkeypatch.setattr(multi, "WRAPPERS", (gym.wrappers.OrderEnforcing,))
    env_id = registered("Masked-v0", Masked)
    args = tiny(multi, tmp_path, env_id=env_id, norm_obs=False, total_timesteps=200)
    multi.train(args)
    assert len(batches) > 5
    for batch in batches:
        assert (batch["x"].bool() == batch["mask"]).all()
        first, second = batch["mask"].split([3, 4], dim=1)
        assert (first.sum(1) == 2).all() and (second.sum(1) == 1).all()
        assert first.gather(1, batch["action"][:, :1]).all()
        assert second.gather(1, batch["action"][:, 1:]).all()
        assert (batch["old_logprob"] > -20).all()


class Blocked(Masked):
    def action_masks(self):
        return self.mask & (np.arange(7) < 3) if self.left < 3 else self.mask


class Short(Masked):
    def action_masks(self):
        return self.mask[:3]


class Ragged(Masked):
    def action_masks(self):
        return [self.mask[:3], self.mask[3:]]


class Property(Masked):
    @property
    def action_masks(self):
        return self.mask


class Plain(gym.Env):
    """Without masks."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.MultiDiscrete([3, 4])

    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}


class InInfo(Plain):
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {"action_mask": np.ones(7, bool)}


class Continuous(Plain):
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)


class Shifted(Plain):
    action_space = gym.spaces.MultiDiscrete([3, 4], start=[1, 0])


class Several(Plain):
    action_space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Discrete(4)])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Blocked, "action_masks.. allows no value of component 1; allow one"),
        (Short, "action_masks.. must return 7 numbers in a row"),
        (Ragged, "action_masks.. must return 7 numbers in a row.*; it returns several rows"),
        (Property, "action_masks must be a method .*, without @property"),
        (Continuous, "use ppo_continuous.py"),
        (Shifted, "do not start at 0; add a wrapper"),
        (Several, "add a wrapper to WRAPPERS whose actions are MultiDiscrete"),
    ],
)
def test_messages(env, message, registered, tmp_path):
    """Would break: a traceback about an array, or an action that the environment does not allow."""
    with pytest.raises(SystemExit, match=message):
        multi.train(tiny(multi, tmp_path, env_id=registered("Wrong-v0", env), total_timesteps=200))


def test_masks_that_are_not_read(registered, tmp_path, capsys):
    """Gymnasium's Taxi has its mask in info. Would break: training without it, and not a word."""
    multi.train(tiny(multi, tmp_path, env_id=registered("InInfo-v0", InInfo), total_timesteps=200))
    assert (
        "masks in `info` are not used, only those of a method action_masks()"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["ppo", "dqn", "reinforce", "pqn", "c51", "ppo_lstm"])
def test_other_files_name_this_one(name, registered, tmp_path):
    algo = load(name)
    with pytest.raises(SystemExit, match="ppo_multidiscrete.py takes MultiDiscrete ones, or add"):
        algo.train(tiny(algo, tmp_path, env_id=registered("Plain-v0", Plain)))
    assert not list(tmp_path.glob("runs/*"))


def test_stochastic_player():
    """Would break: enjoy.py --stochastic, which then plays the likeliest action, or one that is not allowed."""
    agent = enjoy.sample_actions(multi, make_agent(SPACES["MultiDiscrete"]))
    mask = torch.tensor([True, True, False, True, True]).expand(500, -1)
    action = agent.get_mode(torch.zeros(500, 3), mask)
    assert set(action[:, 0].tolist()) == {0, 1} and set(action[:, 1].tolist()) == {1, 2}


def test_switchboard():
    """Would break: rewards for two colours, a mask of another step, an episode without an end."""
    env = gym.make("envs:Switchboard-v0")
    check_env(env.unwrapped, skip_render_check=True)
    obs, _ = env.reset(seed=3)
    total = 0
    for _ in range(20):
        plugs, sockets = obs[:20], obs[20:]
        assert sorted(plugs)[:1] + sorted(plugs)[-1:] == [-1, 1] and abs(plugs).sum() == 2
        assert (env.get_wrapper_attr("action_masks")() == (obs != 0)).all()
        obs, reward, terminated, truncated, _ = env.step([plugs.argmax(), sockets.argmax()])
        total += reward
    assert (total, terminated, truncated) == (20, True, False)
    obs, _ = env.reset(seed=4)
    obs, reward, terminated, _, _ = env.step([obs[:20].argmax(), obs[20:].argmin()])
    assert (reward, terminated) == (0, False)
    _, reward, terminated, _, _ = env.step([(obs[:20] == 0).argmax(), obs[20:].argmin()])
    assert (reward, terminated) == (0, True)
    assert not gym.make("envs:SwitchboardNoMask-v0").has_wrapper_attr("action_masks")
