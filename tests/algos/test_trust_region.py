"""Two ways to keep an update near: ppo_penalty.py's price on the KL, and trpo_continuous.py's limit."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import equal, load, read_checkpoint, run_folder, scalars, spy, tiny
from sb3_contrib import TRPO
from stable_baselines3.common.logger import configure
from test_loss import Idle
from toy_envs import Counter, LastReward

OBS_DIM, ROWS = 3, 128
SPACE = gym.spaces.Box(-1, 1, (2,), np.float32)


def make_agent(algo, **flags):
    """An agent far from its initial weights, and its arguments: one minibatch holds all rows."""
    small = {"num_envs": 4, "num_steps": 32, "num_minibatches": 1, "update_epochs": 1}
    args = algo.Args(**small | flags)
    torch.manual_seed(1)
    agent = algo.Agent(OBS_DIM, SPACE, args)
    for parameter in agent.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return agent, args


# ---- the penalty


@pytest.fixture
def penalty():
    return load("ppo_penalty")


def batch_of(agent) -> dict:
    """The tensors of ppo_loss by name, of the policy as it is."""
    torch.manual_seed(2)
    x, target = torch.randn(ROWS, OBS_DIM), torch.randn(ROWS)
    with torch.no_grad():
        action, logprob, _ = agent.get_action(x)
    return {
        "x": x,
        "action": action,
        "old_logprob": logprob,
        "advantage": 2 * torch.randn(ROWS) + 0.5,
        "target": target,
        "old_value": target,
    }


@pytest.mark.parametrize(("clip", "surrogate"), [({}, 0.75), ({"clip_coef": 0.2}, 0.2)], ids=str)
def test_surrogate_by_hand(penalty, clip, surrogate):
    """Ratios 2 and 1/2, advantages 1 and -1: (2 - 0.5) / 2 without a clip, (1.2 - 0.8) / 2 with one of 0.2.
    Would break: equation 8 with a clip in it, --clip-coef without effect."""
    agent, args = make_agent(penalty, **clip)
    x, advantage = torch.randn(2, OBS_DIM), torch.tensor([1.0, -1.0])
    action, logprob, _ = agent.get_action(x)
    old_logprob = logprob.detach() - torch.tensor([2.0, 0.5]).log()
    samples = x, action, old_logprob, advantage, advantage, advantage
    _, metrics = penalty.ppo_loss(agent, args, *samples)
    assert metrics["losses/policy_loss"].item() == pytest.approx(-surrogate, rel=1e-4)


def update_with(penalty, agent, args, kl) -> None:
    """An update whose KL is this, in the loss as well as after it."""
    agent.get_kl = lambda old, x: kl
    optimizer = torch.optim.Adam(agent.parameters())
    penalty.update(agent, optimizer, args, batch_of(agent))


@pytest.mark.parametrize(("kl", "start", "end"), [(1.0, 9e5, 1e6), (0.0, 1.1e-6, 1e-6)])
def test_beta_has_limits(penalty, kl, start, end):
    """Would break: a weight of 0 or infinity, from which no factor leads back."""
    agent, args = make_agent(penalty, init_beta=start)
    update_with(penalty, agent, args, torch.tensor(kl))
    assert agent.beta.item() == pytest.approx(end)


def test_beta_is_resumed(penalty, monkeypatch, tmp_path):
    """Would break: a resumed run that starts with --init-beta again."""
    args = tiny(penalty, tmp_path, kl_target=1e-9, init_beta=0.5, learning_rate=0.01)
    penalty.train(args)
    run, seen = run_folder(tmp_path), []
    updates = len(scalars(run)["charts/beta"])
    saved = read_checkpoint(run)["agent"]["beta"]
    assert saved == 0.5 * 2**updates and updates > 3
    spy(monkeypatch, penalty, "update", lambda agent, *_: seen.append(agent.beta.item()))
    penalty.train(tiny(penalty, tmp_path, resume=str(run), total_timesteps=100, kl_target=1e-9))
    assert seen[0] == saved


@pytest.mark.parametrize("flag", ["kl_target", "init_beta", "beta_decay"])
def test_flags_of_the_penalty(penalty, tmp_path, flag):
    """Would break: a target of 0, which no weight reaches; a beta that rises where it should fall."""
    for value in (0, -1e-3, math.nan, math.inf) + (1.01,) * (flag == "beta_decay"):
        with pytest.raises(ValueError, match="--" + flag.replace("_", "-")):
            tiny(penalty, tmp_path, **{flag: value})


# ---- the trust region


@pytest.fixture
def trpo():
    return load("trpo_continuous")


def make_batch(agent, samples: int = ROWS) -> dict:
    """What the update gets, of the policy as it is."""
    torch.manual_seed(2)
    x = torch.randn(samples, OBS_DIM)
    with torch.no_grad():
        action, logprob, _ = agent.get_action(x)
    return {
        "x": x,
        "action": action,
        "old_logprob": logprob,
        "advantage": 2 * torch.randn(samples) + 0.5,
        "target": torch.randn(samples),
    }


def policy_of(agent) -> list:
    return [*agent.actor_mean.parameters(), agent.actor_logstd]


def step(trpo, agent, args, batch) -> tuple[dict, list]:
    """The metrics of an update, by name, and the weights of the policy before it."""
    before = [parameter.detach().clone() for parameter in policy_of(agent)]
    optimizer = torch.optim.Adam(agent.critic.parameters(), lr=args.learning_rate)
    metrics = trpo.update(agent, optimizer, args, batch)
    return {name.removeprefix("losses/"): value for name, value in metrics.items()}, before


def same_in_sb3_contrib(agent, args, batch) -> TRPO:
    """Its TRPO with the weights of our agent and a rollout buffer that holds our tensors."""
    model = TRPO(
        "MlpPolicy",
        Idle(),
        learning_rate=args.learning_rate,
        n_steps=ROWS,
        batch_size=ROWS,
        cg_max_steps=args.cg_steps,
        cg_damping=args.cg_damping / 2,
        n_critic_updates=1,
        target_kl=args.max_kl / 2,
        normalize_advantage=args.norm_adv,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
    )
    model.set_logger(configure(None, []))
    for theirs, ours in pairs(model, agent):
        theirs.data.copy_(ours.data)
    names = "observations", "actions", "log_probs", "advantages", "returns"
    for name, tensor in zip(names, batch.values(), strict=True):
        shape = getattr(model.rollout_buffer, name).shape
        setattr(model.rollout_buffer, name, tensor.numpy().reshape(shape).copy())
    model.rollout_buffer.full = True
    model._current_progress_remaining = 1.0
    return model


def pairs(model: TRPO, agent) -> list:
    """(their parameter, our parameter), the policy's and then the value network's."""
    policy, extractor = model.policy, model.policy.mlp_extractor
    theirs = [*extractor.policy_net.parameters(), *policy.action_net.parameters(), policy.log_std]
    theirs += [*extractor.value_net.parameters(), *policy.value_net.parameters()]
    ours = [*policy_of(agent), *agent.critic.parameters()]
    assert len(theirs) == len(ours) == len(list(agent.parameters()))
    return list(zip(theirs, ours))


@pytest.mark.parametrize(
    "flags", [{}, {"norm_adv": False, "max_kl": 0.04}, {"cg_steps": 50, "cg_damping": 0.5}], ids=str
)
def test_step_equals_sb3_contrib(trpo, flags):
    """Would break: any slip in surrogate, Fisher matrix, solver or length of the step. Its KL is the mean over the two
    action dimensions, ours the sum (the KL of the policies): half the damping and half the limit are the same step."""
    agent, args = make_agent(trpo, **flags)
    batch = make_batch(agent)
    model = same_in_sb3_contrib(agent, args, batch)
    start = [parameter.detach().clone() for _, parameter in pairs(model, agent)]
    metrics, _ = step(trpo, agent, args, batch)
    model.train()
    logged = model.logger.name_to_value
    assert metrics["step_share"] > 0 and logged["train/is_line_search_success"] == 1
    assert -metrics["policy_loss"] == pytest.approx(logged["train/policy_objective"], rel=1e-4)
    theirs = logged["train/kl_divergence_loss"]  # KL[new || old]
    assert metrics["kl"] == pytest.approx(2 * theirs, rel=0.1)
    assert 2 * metrics["value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-5)
    moves = [
        [(after - before).detach().flatten() for after, before in zip(side, start)]
        for side in zip(*pairs(model, agent))
    ]
    split = len(policy_of(agent))  # behind it is one step of Adam, whose epsilons differ
    for part, most in ((slice(split), 0.01), (slice(split, None), 0.05)):
        theirs, ours = (torch.cat(move[part]) for move in moves)
        assert theirs.norm() > 0.01 and (ours - theirs).norm() < most * theirs.norm()


def test_all_but_the_update_is_that_of_ppo(trpo, monkeypatch, tmp_path):
    """Runs of both files whose updates do nothing, bit for bit: resets, truncations, normalisation and seeds are tested
    there. Would break: a fix that reaches one of them only, in a later rollout, the statistics, the actions that the
    environments get or the log as well."""
    seen = []
    for algo in (load("ppo_continuous"), trpo):
        batches, make_envs = [], algo.make_envs

        def loud(*args, make_envs=make_envs, **kwargs):  # the rewards of reset rows are not 0
            envs, obs = make_envs(*args, **kwargs)
            return LastReward(envs), obs

        monkeypatch.setattr(algo, "make_envs", loud)

        def update(agent, optimizer, args, batch, *_, to=batches):
            to.append({name: batch[name] for name in batch if name != "old_value"})
            return {}

        monkeypatch.setattr(algo, "update", update)
        Counter.rows.clear()
        same = {"gamma": 0.9, "init_std": 1.0, "num_steps": 16, "total_timesteps": 100}
        algo.train(tiny(algo, tmp_path / algo.__name__, eval_frequency=40, **same))
        run = run_folder(tmp_path / algo.__name__)
        agent, logged = read_checkpoint(run)["agent"], scalars(run)
        buffers = {key: value for key, value in agent.items() if "_rms." in key}
        keys = "charts/episodic_return", "charts/episodic_length", "eval/episodic_return"
        played = [action.tolist() for _, action, _ in Counter.rows]
        seen.append((batches, buffers, [played, *(logged[key] for key in keys)]))
    (theirs, rms, rest), (batches, our_rms, our_rest) = seen
    assert len(batches) == len(theirs) > 3
    for pair in zip(theirs, batches):
        assert 16 < len(pair[1]["x"]) < 32  # without autoreset steps
        assert equal(*pair) and len(pair[1]) == 5
    assert equal(rms, our_rms) and len(rms) == 6 and rest == our_rest


def test_one_sample(trpo):
    """Would break: NaN, as one advantage has no standard deviation, and a message about the learning rate."""
    agent, args = make_agent(trpo, norm_adv=True)
    metrics, _ = step(trpo, agent, args, make_batch(agent, samples=1))
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_new_module_has_an_optimizer(trpo, monkeypatch, tmp_path):
    """Would break: a copy with an encoder that is never trained, and not a word."""
    build = trpo.Agent.__init__

    def with_encoder(self, *args):
        build(self, *args)
        self.encoder = torch.nn.Linear(2, 2)

    monkeypatch.setattr(trpo.Agent, "__init__", with_encoder)
    with pytest.raises(AssertionError, match="policy_parameters"):
        trpo.train(tiny(trpo, tmp_path))


def test_column_in_place_of_a_vector_is_refused(trpo):
    """Would break: (n,) - (n, 1) broadcasts to (n, n), trains nothing and raises nothing."""
    for name in ("old_logprob", "advantage", "target"):
        agent, args = make_agent(trpo)
        batch = make_batch(agent)
        batch[name] = batch[name][:, None]
        with pytest.raises(AssertionError):
            step(trpo, agent, args, batch)
