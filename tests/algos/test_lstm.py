"""PPO with an LSTM: when its state is zero, what an update replays, and the tasks that need memory.

Counter (toy_envs.py) has the observation (id, steps taken, episode). In most tests an LSTM that counts the steps since
its last zero state stands in for the network's. Its output must be steps + 1 at each observation of an episode, the
last one included: then the state was zero before the first observation, and never again until the next one.
"""

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
import torch
from conftest import LSTM, ROOT, command_line, load, read_checkpoint, run_folder, spy, tiny
from gymnasium.utils.env_checker import check_env

GAMMA, LAMBDA = 0.9, 0.8
PARENTS = {"ppo_lstm": "ppo", "ppo_continuous_lstm": "ppo_continuous"}


class Counting(torch.nn.Module):
    """Counts the steps since its last zero state, and notes (steps of the observation, count) of each step."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, state):
        hidden, cell = state
        counts = torch.arange(1, len(x) + 1).view(-1, 1, 1)
        output = hidden + counts
        self.seen += zip(x[..., 1].flatten().tolist(), output[..., 0].flatten().tolist())
        return output, (output[-1:], cell + len(x))


@pytest.fixture(params=LSTM)
def algo(request):
    return load(request.param)


@pytest.fixture
def updates(algo, monkeypatch, tmp_path):
    """Train on Counter; the arguments of each update, before it changes anything."""

    def run(counting: bool = False, **flags):
        given = []

        class CountingAgent(algo.Agent):
            """The LSTM counts, and the value of an observation is the count."""

            def __init__(self, *args):
                super().__init__(*args)
                self.lstm = Counting()

            def get_value(self, x):
                return x[..., 0]

        def before_update(agent, optimizer, args, batch, *_):
            seen = list(agent.lstm.seen) if counting else []
            given.append(
                (agent, args, {name: value.clone() for name, value in batch.items()}, seen)
            )
            check(agent, args, batch)

        check = flags.pop("check", lambda *_: None)
        if counting:
            flags |= {"norm_obs": False, "norm_reward": False, "gamma": GAMMA, "gae_lambda": LAMBDA}
            monkeypatch.setattr(algo, "Agent", CountingAgent)
        spy(monkeypatch, algo, "update", before_update)
        algo.train(tiny(algo, tmp_path, **{"total_timesteps": 60, "eval_episodes": 1} | flags))
        return given

    return run


def test_state_is_zero_at_the_start_of_each_episode_only(updates):
    """In the rollout, in the pass for the values, in the updates and in the evaluation.
    Would break: a state that is reset at the autoreset step or with the last observation, a step late, in every rollout
    or never; one that is not carried to the next rollout; an evaluation without memory."""
    given = updates(counting=True)
    assert len(given) > 3
    agent = given[-1][0]
    assert {steps for steps, _ in agent.lstm.seen} == {0, 1, 2, 3, 4, 5}  # last observations, too
    assert [(steps, count) for steps, count in agent.lstm.seen if count != steps + 1] == []
    in_training = len(given[-1][3])
    assert len(agent.lstm.seen) > in_training  # the last update and the evaluation


def test_truncation_bootstraps_from_the_state_that_saw_the_last_observation(updates):
    """By hand, for the copy of Counter with id 0: s s s| R s s| R s. Step s is paid s, and V = s there. The first
    episode terminates after 3 steps, the second is truncated after 2, and V of its last observation is 3.
    Would break: a value from a state that was zeroed too early (1), or a truncation treated as termination."""
    (_, _, batch, _), *_ = updates(counting=True)
    (env,) = (batch["x"][0, :, 0] == 0).nonzero()
    valid, advantage, start = (batch[name][:, env] for name in ("valid", "advantage", "start"))
    assert valid.flatten().tolist() == [True, True, True, False, True, True, False, True]
    by_hand = [1.8 + 0.72 * (2.7 + 0.72 * 0), 2.7, 0, None, 1.8 + 0.72 * 2.7, 2.7, None, 1.8]
    for ours, expected in zip(advantage.flatten().tolist(), by_hand):
        assert expected is None or ours == pytest.approx(expected)
    assert start.flatten().tolist() == [1, 0, 0, 0, 1, 0, 0, 1]


def test_replay_reproduces_the_rollout_bit_for_bit(updates):
    """With the real LSTM, rollout after rollout.
    Would break: another first state, other statistics, an action, a start or an observation in the wrong row."""

    def check(agent, args, batch):
        with torch.no_grad():
            outputs, _ = agent.run_lstm(batch["x"], batch["state"], batch["start"])
            _, logprob, _ = agent.get_action(outputs, batch["action"])
            assert torch.equal(logprob, batch["old_logprob"])
            assert torch.equal(agent.get_value(outputs), batch["old_value"])

    given = updates(check=check, num_envs=4, total_timesteps=100)
    states = [batch["state"] for _, _, batch, _ in given]
    assert len(given) > 2 and not states[0].any() and all(state.any() for state in states[1:])


def test_gradient_passes_through_time_and_stops_at_an_episode(algo):
    """Would break: a state that is detached from step to step, or that leaks into the next episode."""
    agent = algo.Agent(3, toy_space(algo), algo.Args())
    x = torch.randn(6, 2, 3, requires_grad=True)
    start = torch.zeros(6, 2)
    start[3, 1] = 1
    outputs, _ = agent.run_lstm(x, torch.zeros(2, 2, 64), start)
    outputs[5].sum().backward()
    reached = x.grad.abs().sum(-1) > 0
    assert reached[:, 0].all() and reached[:, 1].tolist() == [False] * 3 + [True] * 3


def toy_space(algo) -> gym.Space:
    if algo.__name__ == "ppo_lstm":
        return gym.spaces.Discrete(3)
    return gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("norm_adv", [False, True])
@pytest.mark.parametrize("clip_vloss", [False, True])
def test_loss_is_that_of_the_parent_on_the_valid_steps(algo, norm_adv, clip_vloss):
    """Would break: an autoreset step in a mean, or one that is counted in its denominator."""
    args = algo.Args(norm_adv=norm_adv, clip_vloss=clip_vloss, ent_coef=0.01)
    agent = algo.Agent(3, toy_space(algo), args)
    batch = {
        "x": torch.randn(7, 4, 3),
        "state": torch.randn(2, 4, 64),
        "start": (torch.rand(7, 4) < 0.3).float(),
        "valid": torch.rand(7, 4) < 0.7,
    }
    with torch.no_grad():
        outputs, _ = agent.run_lstm(batch["x"], batch["state"], batch["start"])
        batch["action"], logprob, _ = agent.get_action(outputs)
    for name in ("advantage", "target", "old_value"):
        batch[name] = torch.randn(7, 4)
    batch["old_logprob"] = logprob + 0.3 * torch.randn(7, 4)
    loss, metrics = algo.ppo_loss(agent, args, **batch)
    loss.backward()
    ours = [parameter.grad.clone() for parameter in agent.parameters()]

    agent.zero_grad()
    outputs, _ = agent.run_lstm(batch.pop("x"), batch.pop("state"), batch.pop("start"))
    valid = batch.pop("valid")
    samples = {name: tensor[valid] for name, tensor in batch.items()}
    if norm_adv:  # the parent divides by n - 1
        centred = samples["advantage"] - samples["advantage"].mean()
        samples["advantage"] = centred / centred.std(correction=0)
        args.norm_adv = False
    parent = load(PARENTS[algo.__name__])
    expected, same = parent.ppo_loss(agent, args, x=outputs[valid], **samples)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics, same)
    for grad, parameter in zip(ours, agent.parameters()):
        torch.testing.assert_close(grad, parameter.grad)


def test_minibatches_hold_whole_environments(algo, updates, monkeypatch):
    """Would break: shuffled steps, a state of another environment, an environment that is left out in an epoch."""
    minibatches = []

    def before_loss(agent, args, **minibatch):
        minibatches.append(minibatch)

    spy(monkeypatch, algo, "ppo_loss", before_loss)
    algo.update.__defaults__ = (algo.ppo_loss,)
    (_, args, batch, _), *_ = updates(num_envs=4, num_minibatches=2, update_epochs=3)
    column = {tuple(batch["old_logprob"][:, env].tolist()): env for env in range(4)}
    assert len(column) == 4
    for epoch in range(3):
        envs = []
        for minibatch in minibatches[2 * epoch : 2 * epoch + 2]:
            chosen = [column[tuple(one.tolist())] for one in minibatch["old_logprob"].T]
            assert len(chosen) == 2
            assert all(torch.equal(minibatch[name], batch[name][:, chosen]) for name in batch)
            envs += chosen
        assert sorted(envs) == [0, 1, 2, 3]


def test_environments_that_cannot_be_divided(algo):
    with pytest.raises(ValueError, match="--num-minibatches 3 must divide --num-envs 64. Try 2"):
        algo.Args(num_minibatches=3)


def test_resume_restores_the_lstm_and_begins_with_zero_states(algo, updates, tmp_path):
    """The environments of a resumed run begin new episodes.
    Would break: weights of the LSTM that start afresh, a state of another episode."""
    updates()
    run = run_folder(tmp_path)
    saved = read_checkpoint(run)
    more = {"resume": str(run), "total_timesteps": saved["global_step"] + 40}
    resumed = []

    def check(agent, args, batch):
        resumed.append({name: tensor.clone() for name, tensor in agent.state_dict().items()})

    (_, _, first, _), (_, _, second, _), *_ = updates(check=check, **more)
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        assert torch.equal(resumed[0][f"lstm.{name}"], saved["agent"][f"lstm.{name}"])
    assert not first["state"].any() and first["start"][0].all() and second["state"].any()
    with pytest.raises(SystemExit, match="lstm_size must stay 64"):
        updates(lstm_size=32, **more | {"total_timesteps": 1000})


def test_forget_gates_remember_at_first(algo):
    """A cell of a unit without input. Would break: the bias of another gate."""
    agent = algo.Agent(3, toy_space(algo), algo.Args(num_steps=100, lstm_size=50))
    for parameter in agent.lstm.parameters():
        if parameter is not agent.lstm.bias_ih_l0:
            parameter.data.zero_()
    state = torch.ones(2, 1, 50)
    state[0] = 0
    input_gate, _, cell, output_gate = agent.lstm.bias_ih_l0.data.chunk(4)
    cell.zero_()
    with torch.no_grad():
        _, state = agent.run_lstm(torch.zeros(20, 1, 3), state, torch.zeros(20, 1))
    kept = [(t / (1 + t)) ** 20 for t in np.logspace(0, 2, 50)]
    np.testing.assert_allclose(state[1, 0], kept, rtol=1e-4)
    assert max(*input_gate.abs(), *output_gate.abs()) < 0.15


# ---- the environments, and what is played in them


@pytest.mark.parametrize("name", ["CartPoleNoVel", "PendulumNoVel", "RecallCue"])
def test_environments_pass_the_checkers(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    env = gym.make(f"envs:{name}-v0")
    check_env(env, skip_render_check=True)
    sb3_checker.check_env(env)


@pytest.mark.parametrize(
    ("name", "parent", "kept"),
    [("CartPoleNoVel-v0", "CartPole-v1", [0, 2]), ("PendulumNoVel-v0", "Pendulum-v1", [0, 1])],
)
def test_only_the_velocities_are_missing(name, parent, kept, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    env, whole = gym.make(f"envs:{name}"), gym.make(parent)
    env.action_space.seed(1)
    pairs = [(env.reset(seed=1), whole.reset(seed=1))]
    ended = False
    while not ended:
        action = env.action_space.sample()
        ours, theirs = env.step(action), whole.step(action)
        assert ours[1:4] == theirs[1:4]
        ended = ours[2] or ours[3]
        pairs.append((ours, theirs))
    for ours, theirs in pairs:
        assert ours[0].tolist() == theirs[0][kept].tolist()


@pytest.mark.parametrize("length", [0, 50])
def test_cue_is_recalled_or_guessed(length, monkeypatch):
    """A policy that remembers the first observation has the return 1, one that does not has 0 on average.
    Would break: a later observation that tells the cue, or a reward before the junction."""
    monkeypatch.syspath_prepend(ROOT)
    env = gym.make("envs:RecallCue-v0", length=length)
    returns = {"recalls": [], "turns right": []}
    for seed in range(40):
        for policy, found in returns.items():
            obs, _ = env.reset(seed=seed)
            assert abs(obs[0]) == 1 and obs[1] == 0
            action = int(obs[0] > 0) if policy == "recalls" else 1
            for step in range(length + 1):
                obs, reward, terminated, truncated, _ = env.step(action)
                assert obs.tolist() == [0, step == length] and (reward, terminated) == (0, False)
            _, reward, terminated, truncated, _ = env.step(action)
            assert terminated and not truncated
            found.append(reward)
    assert returns["recalls"] == [1] * 40
    assert set(returns["turns right"]) == {-1, 1} and abs(sum(returns["turns right"])) < 20


def test_enjoy_plays_the_evaluation_again(algo, tmp_path):
    """Would break: a program that plays without memory, or that does not know the file."""
    algo.train(tiny(algo, tmp_path, env_id=ENJOYED[algo.__name__], total_timesteps=100, seed=1))
    run = run_folder(tmp_path)
    expected = torch.tensor(algo.json.loads((run / "summary.json").read_text())["eval_returns"])
    seeds = [10_007 + 2**30, 10_007 + 2**30 + 1]
    flags = [run, "--no-render", "--seeds", *seeds]
    process = command_line(*flags, script=ROOT / "scripts/enjoy.py", cwd=tmp_path)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    played = [float(line.split("return ")[1].split(",")[0]) for line in output.splitlines()[:2]]
    assert played == pytest.approx(expected.tolist(), abs=0.01)


ENJOYED = {"ppo_lstm": "CartPole-v1", "ppo_continuous_lstm": "Pendulum-v1"}
