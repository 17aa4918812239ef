"""Two ways to keep an update near: ppo_penalty.py's price on the KL, and trpo_continuous.py's limit."""

import json
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import ROOT, equal, load, read_checkpoint, run_folder, scalars, spy, tiny
from plainrl_tools.common import load as load_path
from sb3_contrib import TRPO
from stable_baselines3.common.logger import configure
from test_loss import Idle
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call, hessian
from torch.utils.tensorboard import SummaryWriter
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


def constant(agent, mean, std):
    """The policy of all states."""
    agent.actor_mean[-1].weight.data.zero_()
    agent.actor_mean[-1].bias.data.copy_(torch.tensor(mean))
    agent.actor_logstd.data.copy_(torch.tensor(std).log())


# ---- the penalty


# New: N(1, 2) and N(0, 1). Old: N(m, 1) and N(0, 1). KL = ln 2 + (1 + (m - 1)^2) / 8 - 1/2 in the first dimension and 0
# in the second; m = 0 gives ln 2 - 1/4, m = 1 gives ln 2 - 3/8, so that the mean of two such rows is ln 2 - 5/16.
OLD_MEAN = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
BY_HAND = math.log(2) - 5 / 16


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


def test_kl_by_hand(penalty):
    """Would break: the KL the other way round, a dimension that is missing."""
    agent, _ = make_agent(penalty)
    constant(agent, [1.0, 0.0], [2.0, 1.0])
    old = SimpleNamespace(actor_mean=lambda x: OLD_MEAN, actor_logstd=torch.zeros(2))
    kl = agent.get_kl(old, torch.randn(2, OBS_DIM))
    assert kl.shape == () and kl.item() == pytest.approx(BY_HAND, rel=1e-6)
    assert agent.get_kl(agent, torch.randn(5, OBS_DIM)).item() == pytest.approx(0, abs=1e-6)


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


def test_penalty_in_the_loss(penalty):
    """beta 3 and a KL that is the sum of the scales' logs, beside a loss of 0: a slope of 3 for each. Would break: a
    penalty that is paid for, or without its weight."""
    agent, args = make_agent(penalty, max_grad_norm=1e9, kl_target=1.0)
    agent.beta.fill_(3.0)
    agent.get_kl = lambda old, x: agent.actor_logstd.sum()

    def no_loss(agent, args, **minibatch):
        return 0 * agent.actor_logstd.sum(), {"losses/approx_kl": torch.zeros(())}

    penalty.update(agent, torch.optim.Adam(agent.parameters()), args, batch_of(agent), no_loss)
    assert agent.actor_logstd.grad.tolist() == [3.0, 3.0]


def test_beta_doubles_and_halves(penalty):
    """The paper's rule against 0.02: above 0.03 doubled, below 0.01333 halved, in between as it was. Would break:
    another number in place of 1.5 or 2, the wrong way."""
    agent, args = make_agent(penalty, kl_target=0.02, init_beta=3.0, beta_decay=0.5)
    found = []
    for kl in (0.031, 0.029, 0.0134, 0.0132, 0.5, 1e-9):
        update_with(penalty, agent, args, torch.tensor(kl))
        found.append(agent.beta.item())
    assert found == [6, 6, 6, 3, 6, 3]


def test_beta_falls_slowly(penalty):
    """Four falls undo a doubling, by default. Would break: a fall by half."""
    agent, args = make_agent(penalty, kl_target=0.02)
    for kl in (0.031, 1e-9, 1e-9, 1e-9, 1e-9):
        update_with(penalty, agent, args, torch.tensor(kl))
    assert agent.beta.item() == pytest.approx(2 * 0.84**4) == pytest.approx(1, abs=0.005)


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


def test_old_policy_is_the_one_that_acted(penalty):
    """Would break: an old policy that moves with the new one, or from minibatch to minibatch."""
    agent, args = make_agent(penalty)
    args.num_minibatches, args.update_epochs = 4, 2
    before, batch, seen = agent.actor_mean[0].weight.detach().clone(), batch_of(agent), []

    def get_kl(old, x):
        assert torch.equal(old.actor_mean[0].weight, before)
        assert not old.actor_logstd.requires_grad
        seen.append(x)
        return type(agent).get_kl(agent, old, x)

    agent.get_kl = get_kl
    penalty.update(agent, torch.optim.Adam(agent.parameters(), lr=0.01), args, batch)
    assert [len(x) for x in seen] == [ROWS // 4] * 8 + [ROWS]
    assert torch.equal(seen[-1], batch["x"]) and not torch.equal(agent.actor_mean[0].weight, before)


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


def small_policy():
    """A network of 26 weights and two scales, in float64, and 20 states."""
    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    logstd = torch.nn.Parameter(torch.tensor([-0.5, 0.3]))
    return network.double(), torch.nn.Parameter(logstd.double()), torch.randn(20, 3).double()


def dense_fisher(network, logstd, x, how: str) -> torch.Tensor:
    """The Fisher matrix of all weights in their order, the scales last, without the file's help."""
    names = [name for name, _ in network.named_parameters()]
    sizes = [parameter.numel() for parameter in network.parameters()]
    weights = torch.cat([p.detach().flatten() for p in [*network.parameters(), logstd]])

    def outputs(weights):
        parts = weights[:-2].split(sizes)
        shapes = [parameter.shape for parameter in network.parameters()]
        named = {n: part.view(shape) for n, part, shape in zip(names, parts, shapes)}
        return functional_call(network, named, x), weights[-2:]

    old_mean, old_logstd = (tensor.detach() for tensor in outputs(weights))

    def kl(weights):
        mean, logstd = outputs(weights)
        error = (old_mean - mean) ** 2
        terms = logstd - old_logstd + ((2 * old_logstd).exp() + error) / (2 * (2 * logstd).exp())
        return terms.sum(-1).mean()

    if how == "hessian of the KL":
        return hessian(kl)(weights)
    jacobian = torch.func.jacrev(lambda weights: outputs(weights)[0])(weights)  # (20, 2, 28)
    jacobian = jacobian / old_logstd.exp()[:, None]
    scales = torch.diag(torch.cat([torch.zeros(26), torch.full((2,), 2.0)]).double())
    return torch.einsum("nai,naj->ij", jacobian, jacobian) / len(x) + scales


@pytest.mark.parametrize("how", ["hessian of the KL", "jacobian of the means"])
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_fisher_product(trpo, how, damping):
    """Would break: the first derivative in place of the second, a sum over rows, damping that is lost."""
    network, logstd, x = small_policy()
    matrix = dense_fisher(network, logstd, x, how) + damping * torch.eye(28).double()
    policy = Normal(network(x), logstd.exp())
    product = trpo.fisher_product(policy, [*network.parameters(), logstd], damping)
    ours = torch.stack([product(v) for v in torch.eye(28).double()])
    torch.testing.assert_close(ours, matrix, rtol=1e-9, atol=1e-12)
    assert matrix.abs().max() > 0.5


def test_conjugate_gradient(trpo):
    """Would break: directions that are not conjugate, which need many more steps than there are rows."""
    torch.manual_seed(0)
    root, b = torch.randn(15, 15).double(), torch.randn(15).double()
    matrix = root @ root.T / 15 + 0.1 * torch.eye(15)
    right = torch.linalg.solve(matrix, b)
    errors = []
    for steps in (1, 5, 15):
        x = trpo.conjugate_gradient(lambda v: matrix @ v, b, steps)
        errors.append(((x - right) @ matrix @ (x - right)).item())
    assert errors[0] > 2 * errors[1] > 0 and errors[2] < 1e-9
    assert torch.equal(trpo.conjugate_gradient(lambda v: matrix @ v, 0 * b, 15), 0 * b)


@pytest.mark.parametrize("norm_adv", [True, False])
@pytest.mark.parametrize("max_kl", [1e-4, 0.01, 1.0, 10.0])
def test_step_stays_in_the_region_and_betters_the_surrogate(trpo, max_kl, norm_adv):
    """Measured outside of the file. With so little damping the full step is too long, but for the shortest one. Would
    break: a line search that looks at one of the two, a step that is too short by far."""
    agent, args = make_agent(trpo, max_kl=max_kl, norm_adv=norm_adv, cg_damping=1e-3)
    batch = make_batch(agent)
    x, advantage = batch["x"], batch["advantage"]
    with torch.no_grad():
        old = Normal(agent.actor_mean(x), agent.actor_logstd.exp())
    metrics, before = step(trpo, agent, args, batch)
    kl, share = metrics["kl"], metrics["step_share"]
    new = Normal(agent.actor_mean(x), agent.actor_logstd.exp())
    if norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (new.log_prob(batch["action"]).sum(-1) - batch["old_logprob"]).exp()
    surrogate = (ratio * advantage).mean().item()
    assert kl == pytest.approx(kl_divergence(old, new).sum(-1).mean().item(), rel=1e-3)
    assert 0.2 * max_kl < kl <= max_kl
    assert surrogate > advantage.mean().item()
    assert metrics["policy_loss"] == pytest.approx(-surrogate, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(new.entropy().sum(-1).mean().item(), rel=1e-5)
    assert (share == 1) == (max_kl == 1e-4)
    assert min(abs(share - 0.8**trial) for trial in range(10)) < 1e-6


def test_no_better_step_is_refused(trpo, monkeypatch):
    """Where no trial betters the surrogate. Would break: weights of the last trial, or weights that differ in the
    last digit."""
    agent, args = make_agent(trpo)
    calls, original = [], trpo.surrogate_loss

    def worse(*args, **tensors):
        calls.append(1)
        loss, policy = original(*args, **tensors)
        return loss + (len(calls) > 1), policy

    monkeypatch.setattr(trpo, "surrogate_loss", worse)
    metrics, before = step(trpo, agent, args, make_batch(agent))
    assert len(calls) == 12  # before the step, ten trials, and the metrics
    assert metrics["kl"] == metrics["step_share"] == 0
    assert all(torch.equal(*pair) for pair in zip(before, policy_of(agent)))


def test_step_out_of_the_region_is_refused(trpo, monkeypatch):
    """Where every trial leaves the region. Would break: a better surrogate alone that is enough."""
    agent, args = make_agent(trpo)
    monkeypatch.setattr(trpo, "kl_divergence", lambda old, new: 1 + kl_divergence(old, new))
    metrics, before = step(trpo, agent, args, make_batch(agent))
    assert metrics["step_share"] == 0
    assert all(torch.equal(*pair) for pair in zip(before, policy_of(agent)))


@pytest.mark.parametrize("advantage", [0.0, 7.0, math.nan])
@pytest.mark.parametrize("norm_adv", [True, False])
def test_nothing_to_better(trpo, advantage, norm_adv):
    """No advantage, and advantages that are no numbers. Would break: 0 / 0 in the length of the step, which ends in the
    weights."""
    agent, args = make_agent(trpo, norm_adv=norm_adv)
    batch = make_batch(agent)
    batch["advantage"] = torch.full_like(batch["advantage"], advantage)
    critic = agent.critic[0].weight.detach().clone()
    metrics, before = step(trpo, agent, args, batch)
    if advantage != 7 or norm_adv:
        assert metrics["step_share"] == 0
        assert all(torch.equal(*pair) for pair in zip(before, policy_of(agent)))
    assert all(parameter.isfinite().all() for parameter in agent.parameters())
    assert not torch.equal(critic, agent.critic[0].weight)  # the values are learned all the same


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


def test_values_are_learned_from_every_row_in_each_epoch(trpo, monkeypatch):
    """Would break: minibatches drawn with replacement, one order for all epochs, targets of other rows."""
    agent, args = make_agent(trpo, num_minibatches=4, update_epochs=3)
    batch = make_batch(agent, samples=114)  # of 128 steps; the others are autoreset steps
    batch["target"] = torch.arange(114.0)
    batch["x"][:, 0] = batch["target"]
    seen, original = [], trpo.value_loss

    def record(agent, x, target):
        assert torch.equal(x[:, 0], target)
        seen.append(target.clone())
        return original(agent, x, target)

    monkeypatch.setattr(trpo, "value_loss", record)
    step(trpo, agent, args, batch)
    assert len(seen) == 12
    epochs = [torch.cat(seen[4 * k : 4 * k + 4]) for k in range(3)]
    assert all(epoch.sort().values.equal(batch["target"]) for epoch in epochs)
    assert not epochs[0].equal(epochs[1]) and not epochs[0].equal(batch["target"])


def test_column_in_place_of_a_vector_is_refused(trpo):
    """Would break: (n,) - (n, 1) broadcasts to (n, n), trains nothing and raises nothing."""
    for name in ("old_logprob", "advantage", "target"):
        agent, args = make_agent(trpo)
        batch = make_batch(agent)
        batch[name] = batch[name][:, None]
        with pytest.raises(AssertionError):
            step(trpo, agent, args, batch)


def test_largest_update_before_a_fall(tmp_path):
    """Would break: an update of after the fall, or of before the run had learned, taken for the largest one."""
    largest_kl = load_path(ROOT / "benchmarks/studies/trust_region/analyse.py")
    run = tmp_path / "run"
    returns = {50_000: -900, 260_000: -150, 501_000: -200, 505_000: -900, 510_000: -500}
    sizes = {50_000: 5.0, 260_000: 0.3, 501_000: 0.05, 505_000: 0.2, 510_000: 2.0}
    with SummaryWriter(run) as writer:
        for step in returns:
            writer.add_scalar("losses/approx_kl", sizes[step], step)
            writer.add_scalar("charts/episodic_return", returns[step], step)
    summary = {"env_id": "Pendulum-v1", "seed": 3, "commit": "abc", "args": {"exp_name": "x"}}
    summary |= {"total_timesteps": 1_000_000, "global_step": 1_000_000}
    (run / "summary.json").write_text(json.dumps(summary))
    row = largest_kl.look(run, largest_kl.Options((run,)))
    assert row == ("x", "Pendulum-v1", 3, 3, "0.2", 2, "0.3", 260_000, 505_000, "abc")
    calm = largest_kl.look(run, largest_kl.Options((run,), fall=-600, above=1.0))
    assert calm[3:9] == (4, "0.25", 1, "2", 510_000, "")
