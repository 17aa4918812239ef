"""PPO with an LSTM: when its state is zero, what an update replays, and the tasks that need memory.

In some tests an LSTM that counts the steps since its last zero state stands in for the network's. Its output must be
steps + 1 at each observation of an episode of Counter or FakeAtari (toy_envs.py), the last one included: then the state
was zero before the first observation, and not again until the next episode.
"""

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
import torch
from conftest import FILES, LSTM, cheap, fake_atari, load, read_checkpoint, run_folder, spy, tiny
from gymnasium.utils.env_checker import check_env

VECTORS = ["ppo_lstm", "ppo_continuous_lstm"]
SPACES = dict.fromkeys(LSTM, gym.spaces.Discrete(3))
SPACES["ppo_continuous_lstm"] = gym.spaces.Box(-1, 1, (2,), np.float32)


class Counting(torch.nn.Module):
    """Counts the steps since its last zero state, and notes (steps of the observation, count)."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, state):
        output = state[0] + torch.arange(1, len(x) + 1).view(-1, 1, 1)
        self.seen += zip(x[..., 1].flatten().tolist(), output[..., 0].flatten().tolist())
        return output, (output[-1:], state[1])


@pytest.fixture(params=VECTORS)
def algo(request):
    return load(request.param)


@pytest.fixture(params=LSTM)
def any_algo(request):
    return load(request.param)


def make_agent(algo, args):
    """An agent whose LSTM reads vectors of 3 numbers, and the name of the loss's argument for them."""
    space = SPACES[algo.__name__]
    if algo.__name__ != "ppo_atari_lstm":
        return algo.Agent(3, space, args), "x"
    agent = algo.Agent(space, args, "float32")
    agent.lstm = torch.nn.LSTM(3, args.lstm_size)
    agent.features = lambda obs: obs
    return agent, "obs"


def updates(algo, monkeypatch, folder, counting=False, check=lambda *_: None, **flags) -> list:
    """Train on Counter or FakeAtari; (agent, batch, what a counting LSTM has seen) of each update."""
    atari = algo.__name__ == "ppo_atari_lstm"
    if atari and not hasattr(algo.AtariVectorEnv, "rows"):
        fake_atari(algo, monkeypatch)
        cheap(algo, monkeypatch)
    given = []

    class CountingAgent(algo.Agent):
        """The value of an observation is the count."""

        def __init__(self, *args):
            super().__init__(*args)
            self.lstm = Counting()

        def features(self, obs):  # Atari: the step that the image shows
            return obs[:, 0, 56, :2].float() - 1

        def get_value(self, x):
            return x[..., 0]

    def before_update(agent, optimizer, args, batch, *_):
        seen = len(agent.lstm.seen) if counting else 0
        given.append((agent, {name: value.clone() for name, value in batch.items()}, seen))
        check(agent, batch)

    if counting:
        flags |= {"gamma": 0.9, "gae_lambda": 0.8}
        if not atari:
            flags |= {"norm_obs": False, "norm_reward": False}
        monkeypatch.setattr(algo, "Agent", CountingAgent)
    spy(monkeypatch, algo, "update", before_update)
    algo.train(tiny(algo, folder, **{"total_timesteps": 60, "eval_episodes": 1} | flags))
    return given


@pytest.mark.parametrize("name", LSTM)
def test_state_is_zero_at_the_start_of_each_episode_only(name, monkeypatch, tmp_path):
    """In the rollout, in the values, in the updates and in the evaluation.
    Would break: a state that becomes zero with the last observation, a step late, with a lost life, in every rollout
    or never; an evaluation without memory."""
    given = updates(load(name), monkeypatch, tmp_path, counting=True)
    agent, _, in_training = given[-1]
    assert len(given) > 3 and len(agent.lstm.seen) > in_training
    assert {steps for steps, _ in agent.lstm.seen} >= {0, 1, 2, 3, 4}  # 4: of a last observation
    assert [(steps, count) for steps, count in agent.lstm.seen if count != steps + 1] == []


def test_truncation_bootstraps_from_the_state_that_saw_the_last_observation(
    algo, monkeypatch, tmp_path
):
    """By hand, for the copy of Counter with id 0: s s s| R s s| R s. Step s is paid s, and V = s there. The first
    episode terminates after 3 steps, the second is truncated after 2, and V of its last observation is 3.
    Would break: a value from a state that was zero too early (1), or a truncation treated as termination."""
    (_, batch, _), *_ = updates(algo, monkeypatch, tmp_path, counting=True)
    (env,) = (batch["x"][0, :, 0] == 0).nonzero().flatten().tolist()
    valid, advantage, start = (batch[key][:, env] for key in ("valid", "advantage", "start"))
    assert valid.tolist() == [True, True, True, False, True, True, False, True]
    assert start.tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    by_hand = [1.8 + 0.72 * 2.7, 2.7, 0, 1.8 + 0.72 * 2.7, 2.7, 1.8]
    assert advantage[valid].tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("name", LSTM)
def test_replay_reproduces_the_rollout_bit_for_bit(name, monkeypatch, tmp_path):
    """Would break: another first state, other statistics, an action, a start or an observation in the wrong row."""

    def check(agent, batch):
        obs = batch["x"] if "x" in batch else batch["obs"]
        with torch.no_grad():
            outputs, _ = agent.run_lstm(obs, batch["state"], batch["start"])
            if hasattr(agent, "get_action"):
                _, logprob, _ = agent.get_action(outputs, batch["action"])
                value = agent.get_value(outputs)
            else:
                _, logprob, _, value = agent.get_action_and_value(outputs, batch["action"])
        assert torch.equal(logprob, batch["old_logprob"])
        assert torch.equal(value, batch["old_value"])

    flags = {"num_envs": 4, "total_timesteps": 100}
    given = updates(load(name), monkeypatch, tmp_path, check=check, **flags)
    states = [batch["state"] for _, batch, _ in given]
    assert len(given) > 2 and not states[0].any() and all(state.any() for state in states[1:])


def test_gradient_passes_through_time_and_stops_at_an_episode(algo):
    """Would break: a state that is detached from step to step, or that leaks into the next episode."""
    agent = algo.Agent(3, SPACES[algo.__name__], algo.Args())
    x = torch.randn(6, 2, 3, requires_grad=True)
    start = torch.zeros(6, 2)
    start[3, 1] = 1
    outputs, _ = agent.run_lstm(x, torch.zeros(2, 2, 64), start)
    outputs[5].sum().backward()
    reached = x.grad.abs().sum(-1) > 0
    assert reached[:, 0].all() and reached[:, 1].tolist() == [False] * 3 + [True] * 3


@pytest.mark.parametrize("norm_adv", [False, True])
def test_loss_is_that_of_the_parent_on_the_valid_steps(any_algo, norm_adv):
    """Would break: an autoreset step in a mean, or one that is counted in its denominator."""
    algo = any_algo
    args = algo.Args(norm_adv=norm_adv, clip_vloss=True, ent_coef=0.01)
    agent, x = make_agent(algo, args)
    if hasattr(agent, "actor"):
        list(agent.actor.parameters())[-2].data *= 100  # so that the entropy depends on the step
    sequence = {x: torch.randn(7, 4, 3), "state": torch.randn(2, 4, args.lstm_size)}
    sequence["start"] = (torch.rand(7, 4) < 0.3).float()
    valid = torch.rand(7, 4) < 0.7
    samples = {key: torch.randn(7, 4) for key in ("advantage", "target", "old_value")}
    outputs, _ = agent.run_lstm(**sequence)
    with torch.no_grad():
        act = agent.get_action if hasattr(agent, "get_action") else agent.get_action_and_value
        samples["action"], logprob, *_ = act(outputs)
    samples["old_logprob"] = logprob + 0.3 * torch.randn(7, 4)
    loss, metrics = algo.ppo_loss(agent, args, valid=valid, **sequence, **samples)
    parts = [agent.lstm, agent.critic, getattr(agent, "actor", None) or agent.actor_mean]
    weights = [weight for part in parts for weight in part.parameters()]
    ours = torch.autograd.grad(loss, weights)

    samples = {key: tensor[valid] for key, tensor in samples.items()}
    if norm_adv:  # the parent divides by n - 1
        centred = samples["advantage"] - samples["advantage"].mean()
        samples["advantage"] = centred / centred.std(correction=0)
        args.norm_adv = False
    parent = load(FILES[algo.__name__].parent)
    expected, same = parent.ppo_loss(agent, args, **{x: outputs[valid]}, **samples)
    gradient = torch.autograd.grad(expected, weights)
    torch.testing.assert_close((loss, metrics, ours), (expected, same, gradient))


def test_minibatches_hold_whole_environments(any_algo, monkeypatch, tmp_path):
    """Would break: shuffled steps, a state of another environment, an environment that is left out in an epoch."""
    algo, minibatches = any_algo, []
    spy(monkeypatch, algo, "ppo_loss", lambda agent, args, **one: minibatches.append(one))
    flags = {"num_envs": 4, "num_minibatches": 2, "update_epochs": 3}
    _, (_, batch, _), *_ = updates(algo, monkeypatch, tmp_path, **flags)  # states are not zero
    column = {tuple(batch["old_logprob"][:, env].tolist()): env for env in range(4)}
    assert len(column) == 4
    for epoch in range(3):
        envs = []
        for minibatch in minibatches[6 + 2 * epoch : 8 + 2 * epoch]:
            chosen = [column[tuple(one.tolist())] for one in minibatch["old_logprob"].T]
            assert len(chosen) == 2
            assert all(torch.equal(minibatch[key], batch[key][:, chosen]) for key in batch)
            envs += chosen
        assert sorted(envs) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="--num-minibatches 3 must divide --num-envs 64. Try 2"):
        algo.Args(num_envs=64, num_minibatches=3)


def test_resume_restores_the_lstm_and_begins_with_zero_states(any_algo, monkeypatch, tmp_path):
    """The environments of a resumed run begin new episodes.
    Would break: weights of the LSTM that start afresh, a state of another episode."""
    algo = any_algo
    updates(algo, monkeypatch, tmp_path)
    run, weights = run_folder(tmp_path), []
    size = algo.Args().lstm_size
    saved = read_checkpoint(run)
    more = {"resume": str(run), "total_timesteps": saved["global_step"] + 40}

    def check(agent, batch):
        weights.append({key: tensor.clone() for key, tensor in agent.lstm.state_dict().items()})

    (_, first, _), (_, second, _), *_ = updates(algo, monkeypatch, tmp_path, check=check, **more)
    assert all(torch.equal(saved["agent"][f"lstm.{key}"], one) for key, one in weights[0].items())
    assert not first["state"].any() and first["start"][0].all() and second["state"].any()
    with pytest.raises(SystemExit, match=f"lstm_size must stay {size}"):
        updates(algo, monkeypatch, tmp_path, **more | {"total_timesteps": 999, "lstm_size": 32})


def test_forget_gates_remember_at_first(algo):
    """A cell of each unit without input. Would break: the bias of another gate."""
    agent = algo.Agent(3, SPACES[algo.__name__], algo.Args(num_steps=100, lstm_size=50))
    for name, parameter in agent.lstm.named_parameters():
        parameter.data[100:150] = 0  # the cell gate
        if name != "bias_ih_l0":
            parameter.data.zero_()
    state = torch.stack((torch.zeros(1, 50), torch.ones(1, 50)))
    with torch.no_grad():
        _, state = agent.run_lstm(torch.zeros(20, 1, 3), state, torch.zeros(20, 1))
    kept = [(t / (1 + t)) ** 20 for t in np.logspace(0, 2, 50)]
    np.testing.assert_allclose(state[1, 0], kept, rtol=1e-4)


def test_only_the_velocities_are_missing():
    """Would break: another number that is missing, or rewards and ends that are not the task's."""
    for name, kept in (("CartPole", [0, 2]), ("Pendulum", [0, 1])):
        env, whole = gym.make(f"envs:{name}NoVel-v0"), gym.make(f"{name}-v1")
        sb3_checker.check_env(env)
        result, expected = env.reset(seed=1), whole.reset(seed=1)
        while not (len(result) > 2 and (result[2] or result[3])):
            assert result[0].tolist() == expected[0][kept].tolist()
            action = whole.action_space.sample()
            result, expected = env.step(action), whole.step(action)
            assert result[1:4] == expected[1:4]


def test_cue_is_recalled_or_guessed():
    """The policy that remembers the first observation has the return 1, one that does not has 0 on average.
    Would break: a later observation that tells the cue, or a reward before the junction."""
    env = gym.make("envs:RecallCue-v0")
    check_env(env.unwrapped, skip_render_check=True)
    returns = {True: [], False: []}
    for seed in range(40):
        for recalls, found in returns.items():
            obs, _ = env.reset(seed=seed)
            assert abs(obs[0]) == 1 and obs[1] == 0
            action = int(obs[0] > 0) if recalls else 1
            for step in range(51):
                obs, reward, terminated, _, _ = env.step(action)
                assert (*obs.tolist(), reward, terminated) == (0, step == 50, 0, False)
            _, reward, terminated, _, _ = env.step(action)
            assert terminated
            found.append(reward)
    assert set(returns[True]) == {1}
    assert set(returns[False]) == {-1, 1} and abs(sum(returns[False])) < 20


def test_greedy_action_of_atari():
    """Would break: an evaluation that explores with probability 1 - epsilon, or that takes another action."""
    atari = load("ppo_atari_lstm")
    agent = atari.Agent(gym.spaces.Discrete(4), atari.Args(), "float32")
    outputs = torch.randn(2000, agent.actor.in_features)
    best = agent.actor(outputs).argmax(-1)
    assert torch.equal(agent.get_greedy_action(outputs, epsilon=0.0), best)
    assert 0.97 < (agent.get_greedy_action(outputs) == best).float().mean() < 1
