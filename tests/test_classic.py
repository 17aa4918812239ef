"""ppo.py, dqn.py, reinforce.py and the files for pixels: what they leave, one seed twice, resume, signals, bad input.
See test_runs.py."""

import json
import math
import re
import signal

import conftest
import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import (
    ALGOS,
    CLASSIC,
    PIXELS,
    ROOT,
    command_line,
    load,
    only,
    read_checkpoint,
    run_folder,
    scalars,
    spy,
)
from conftest import tiny_classic as tiny
from test_bad_input import flag, hide, refused
from test_runs import KILLER, SUMMARY, Evil
from toy_envs import Counter

CHARTS = {"charts/episodic_return", "charts/episodic_length", "charts/SPS", "eval/episodic_return"}
LOSSES = {
    "ppo": {"policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac", "explained_variance"},
    "dqn": {"td_loss", "q_values"},
    "reinforce": {"policy_loss", "value_loss", "entropy"},
}


def test_run_folder(classic, tmp_path):
    """Would break: a key of the tables and plots that is missing, a summary unlike what train() returned."""
    summary = classic.train(
        tiny(classic, tmp_path, seed=4, total_timesteps=400, eval_frequency=200)
    )
    run, name = run_folder(tmp_path), classic.__name__
    assert re.fullmatch(rf"CartPole-v1__{name}__4__\d+", run.name)
    best = {"best"} if name.startswith("dqn") else set()
    files = {"config", "checkpoint", "summary", "events"} | best
    assert {path.name.split(".")[0] for path in run.iterdir()} == files
    assert json.loads((run / "summary.json").read_text()) == summary and summary.keys() >= SUMMARY
    assert (summary["algo"], summary["env_id"], summary["seed"]) == (name, "CartPole-v1", 4)
    assert len(summary["eval_returns"]) == summary["eval_episodes"] == 2 and summary["sps"] > 0
    logged = scalars(run)
    assert logged.keys() >= CHARTS | {
        f"losses/{key}" for key in LOSSES[name.removesuffix("_pixels")]
    }
    assert all(np.isfinite(value) for points in logged.values() for _, value in points)
    evaluated = logged["eval/episodic_return"]
    assert (
        evaluated[-1] == (summary["global_step"], pytest.approx(summary["eval_return_mean"]))
        and len(evaluated) > 1
    )
    assert read_checkpoint(run).keys() >= {
        "args",
        "agent",
        "optimizer",
        "global_step",
        "versions",
        "commit",
    }


def test_an_id_with_a_module_or_a_slash(classic, tmp_path):
    """Would break: a run in a folder of its own, or in one that some systems cannot name."""
    kind = "Pixels" if classic.__name__ in PIXELS else "Discrete"
    ids = {
        f"toy_envs:Counter{kind}-v0": f"toy_envs-Counter{kind}-v0",
        f"a/{kind}-v0": f"a-{kind}-v0",
    }
    for env_id, name in ids.items():
        if "/" in env_id and env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point=gym.spec(f"Counter{kind}-v0").entry_point,
                disable_env_checker=True,
            )
        classic.train(tiny(classic, tmp_path / name, env_id=env_id))
        assert run_folder(tmp_path / name).name.startswith(f"{name}__")


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_same_seed_same_metrics(classic, tmp_path, backend):
    """Would break: any generator that is not seeded, any order that depends on time."""
    given = (
        {"env_backend": backend}
        if hasattr(classic.Args, "env_backend")
        else {"precision": "float32"}
    )
    if backend == "envpool" and "precision" in given:
        pytest.skip("files for pixels have one backend")
    returns, logged = conftest.seeds_1_1_2(
        classic, tiny, tmp_path, **given | {"total_timesteps": 160 if "precision" in given else 400}
    )
    assert (returns[0], logged[0]) == (returns[1], logged[1])
    key = "losses/td_loss" if classic.__name__.startswith("dqn") else "losses/value_loss"
    assert logged[0][key] != logged[2][key]


def test_evaluating_on_the_way_does_not_change_training(classic, tmp_path):
    """Would break: an evaluation that draws from training's generators, or steps its environments."""
    assert not conftest.is_disturbed_by_evaluations(
        classic, tiny, tmp_path, 16, env_id="CounterDiscrete-v0"
    )


def test_resume_from_the_command_line(classic, tmp_path):
    """Would break: a resumed run in a folder of its own, from step 0, with default flags, or with a doubled curve."""
    classic.train(tiny(classic, tmp_path, seed=3, gamma=0.9))
    run = run_folder(tmp_path)
    before, saved = scalars(run), read_checkpoint(run)
    flags = (
        "--resume",
        run,
        "--total-timesteps",
        400,
        "--learning-rate",
        1e-4,
        "--runs-dir",
        tmp_path / "other",
    )
    process = command_line(*flags, script=ALGOS / f"{classic.__name__}.py", cwd=tmp_path)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert run_folder(tmp_path) == run and not (tmp_path / "other").exists()
    used, after = json.loads((run / "summary.json").read_text())["args"], read_checkpoint(run)
    assert (used["seed"], used["gamma"], used["num_envs"]) == (3, 0.9, 2)  # as saved
    assert (used["total_timesteps"], used["learning_rate"]) == (
        400,
        1e-4,
    )  # as given beside --resume
    assert after["global_step"] >= 400 > saved["global_step"]
    steps = [checkpoint["optimizer"]["state"][0]["step"] for checkpoint in (saved, after)]
    assert 0 < steps[0] < steps[1]
    logged = scalars(run)
    for key in logged.keys() - {"eval/episodic_return"}:
        points = [step for step, _ in logged[key]]
        assert points == sorted(set(points)) and logged[key][
            : len(before.get(key, []))
        ] == before.get(key, []), key


@pytest.mark.slow
@only("dqn")
def test_kill_at_20_random_moments(classic, tmp_path):
    """Would break: a checkpoint written in place, which a kill leaves half-written; one that cannot be resumed."""
    flags = {
        "num_envs": 2,
        "checkpoint_frequency": 1,
        "eval_frequency": 40,
        "eval_episodes": 1,
        "num_steps": 4,
    }
    flags |= {"num_minibatches": 1, "update_epochs": 1, "buffer_size": 400, "learning_starts": 6}
    flags = {key: value for key, value in flags.items() if hasattr(classic.Args, key)}
    script, old = (
        tmp_path / "killer.py",
        KILLER[KILLER.index("flags = dict(") : KILLER.index("module.train(")],
    )
    script.write_text(
        KILLER.replace(
            old,
            f"flags = dict(env_id='CartPole-v1', env_backend='gymnasium', runs_dir=str(runs), "
            f"total_timesteps=10**7, **{flags})\n",
        )
    )
    file = ALGOS / f"{classic.__name__}.py"
    process = command_line(file, tmp_path / "runs", script=script, cwd=tmp_path)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    steps = json.loads(output.splitlines()[-1])
    assert len(steps) == 20 and steps == sorted(steps) and len(set(steps)) > 10
    run = run_folder(tmp_path)
    process = command_line(
        "--resume", run, "--total-timesteps", steps[-1] + 80, script=file, cwd=tmp_path
    )
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert json.loads((run / "summary.json").read_text())["global_step"] >= steps[-1] + 80


@pytest.mark.parametrize("where", ["train", "evaluate"])
def test_signals_save_first(classic, tmp_path, where):
    """Would break: a stopped run that loses what it has learned, or exits as if it had finished."""
    number = signal.SIGINT if where == "train" else signal.SIGTERM
    variables = {"SIGNAL_NUMBER": str(int(number)), "SIGNAL_STEP": "18", "SIGNAL_WHERE": where}
    args = tiny(
        classic,
        tmp_path,
        total_timesteps=10**7,
        env_id="toy_envs:SignalDiscrete-v0",
        eval_frequency=20,
    )
    flags = [part for key in ("num_envs", "eval_episodes", "env_id", "eval_frequency", "total_timesteps")
             for part in (f"--{key.replace('_', '-')}", getattr(args, key))]  # fmt: skip
    flags += (
        ["--num-steps", 8, "--num-minibatches", 2] if classic.__name__.startswith("ppo") else []
    )
    flags += ["--buffer-size", 2000] if classic.__name__ == "dqn_pixels" else []
    process = command_line(
        *flags,
        script=ALGOS / f"{classic.__name__}.py",
        cwd=tmp_path,
        PYTHONPATH=str(ROOT / "tests"),
        **variables,
    )
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 128 + number and "Traceback" not in errors, errors
    run = run_folder(tmp_path)
    assert read_checkpoint(run)["global_step"] >= (13 if where == "train" else 20)
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize("name", ["NanReward", "InfiniteReward", "NanObservation"])
def test_non_finite_environment_stops_the_run(classic, tmp_path, capsys, name):
    """Would break: a NaN that reaches the weights or the last good checkpoint."""
    if classic.__name__ in PIXELS and name == "NanObservation":
        pytest.skip("bytes are finite")
    flags = {
        "env_id": f"{name}Discrete-v0",
        "total_timesteps": 1000,
        "checkpoint_frequency": 1,
        "eval_episodes": 1,
    }
    with pytest.raises(SystemExit) as stopped:
        classic.train(tiny(classic, tmp_path, **flags))
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"step \d+", line) and ("observation" in line or "reward" in line)
    assert all(
        value.isfinite().all() for value in read_checkpoint(run_folder(tmp_path))["agent"].values()
    )


def test_non_finite_loss_stops_the_run(classic, tmp_path, capsys):
    """Would break: a run that goes on with weights that are not numbers."""
    with pytest.raises(SystemExit) as stopped:
        classic.train(
            tiny(
                classic,
                tmp_path,
                learning_rate=1e30,
                total_timesteps=10_000,
                checkpoint_frequency=1,
            )
        )
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "loss" in line and re.search(r"step \d+", line)


def test_videos(classic, tmp_path):
    """The whole episode: its first picture and one for each step. Would break: --capture-video that records nothing, or
    another episode."""
    imageio = pytest.importorskip("imageio.v3")
    for env_id, skip in (("CartPole-v1", 1), ("envs:CartPolePixels-v0", 2))[
        : 1 + (classic.__name__ in PIXELS)
    ]:
        folder = tmp_path / env_id.replace(":", "-")
        summary = classic.train(
            tiny(classic, folder, env_id=env_id, capture_video=True, eval_episodes=1)
        )
        (film,) = (run_folder(folder) / "videos").rglob("*.mp4")
        assert len(imageio.imread(film)) == math.ceil(summary["eval_returns"][0] / skip) + 1


# ---- bad input ----

BAD = [
    ({"env_id": "CartPole-v11"}, ["CartPole-v1"]),
    ({"env_id": "Pendulum-v1"}, ["ppo_continuous.py"]),  # Box actions
    ({"env_id": "Pendulum-v1", "env_backend": "envpool"}, ["ppo_continuous.py"]),
    ({"env_id": "FrozenLake-v1"}, []),  # Discrete observations
    ({"env_id": "CounterDiscrete-v0", "env_backend": "envpool"}, ["envpool"]),
    ({"env_id": "ShiftedDiscrete-v0"}, ["start=5"]),
    ({"learning_rate": float("nan")}, []),
    ({"eval_frequency": -1}, []),
    ({"seed": -1}, []),
    ({"device": "cuda"}, ["auto"]),
    ({"track": True}, ["wandb"]),
    ({"capture_video": True}, ["moviepy"]),
    ({"resume": "no/such/run"}, ["no/such/run"]),
    *[
        ({name: 0}, [])
        for name in ("num_envs", "total_timesteps", "eval_episodes", "checkpoint_frequency")
    ],
    ({"torch_threads": -1}, []),
]
OWN_BAD = {
    "ppo": [
        ({"num_steps": 1}, []),
        ({"num_minibatches": 3}, ["16"]),
        ({"update_epochs": 0}, []),
        ({"max_grad_norm": -1.0}, []),
        ({"gamma": -0.1}, []),
        ({"gae_lambda": 1.01}, []),
    ],
    "dqn": [
        ({"buffer_size": 15}, ["16"]),
        ({"learning_starts": 65}, ["64"]),
        ({"learning_starts": 5}, ["6"]),
        ({"learning_starts": 64}, ["--total-timesteps"]),
        ({"buffer_size": 10**9, "learning_starts": 32}, ["15 GiB"]),
        ({"gamma": 1.5}, []),
        ({"start_e": 1.1}, []),
        ({"eval_e": -0.1}, []),
        ({"tau": 2.0}, []),
        ({"batch_size": 0}, []),
        ({"train_frequency": 0}, []),
        ({"target_network_frequency": -1}, []),
        ({"max_grad_norm": 0.0}, []),
    ],
    "reinforce": [({"gamma": -0.1}, [])],
}
PIXELS_BAD = [
    *[bad for bad in BAD if "env_id" not in bad[0]],
    ({"env_id": "ShiftedPixels-v0"}, ["start=5"]),
    ({"env_id": "CartPole-v11"}, ["CartPole-v1"]),
    ({"env_id": "Pendulum-v1"}, ["Discrete"]),  # Box actions
    ({"env_id": "no_such_module:Any-v0"}, ["PYTHONPATH"]),
    ({"env_id": "Counter-v0"}, ["pictures"]),  # neither shows nor renders them
    ({"env_id": "TinyPixels-v0"}, ["32"]),
    ({"env_id": "OddPixels-v0"}, ["38"]),
]
OWN_BAD["ppo_pixels"] = OWN_BAD["ppo"]
OWN_BAD["dqn_pixels"] = [bad for bad in OWN_BAD["dqn"] if bad[0].get("buffer_size", 0) < 10**9]
OWN_BAD["dqn_pixels"] += [({"buffer_size": 10**6, "learning_starts": 32}, ["GiB"])]


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [(name, *bad) for name in CLASSIC for bad in BAD + OWN_BAD[name]]
    + [(name, *bad) for name in PIXELS for bad in PIXELS_BAD + OWN_BAD[name]],
    ids=lambda value: str(value) if isinstance(value, dict | str) else "",
)
def test_refused(name, monkeypatch, tmp_path, capsys, flags, words):
    """Would break: a traceback, a run that fails after an hour, an empty run folder."""
    algo = load(name)
    for package in ("wandb", "moviepy"):
        hide(monkeypatch, package)
    for device in ("cuda", "mps", "backends.mps"):
        monkeypatch.setattr(f"torch.{device}.is_available", lambda: False)
    refused(algo, tiny(algo, tmp_path, **flags), capsys, tmp_path, flag(next(iter(flags))), *words)


@pytest.mark.parametrize("kind", ["text", "evil", "other"])
def test_foreign_file_as_resume(classic, tmp_path, capsys, kind):
    """Would break: a checkpoint that runs code when it is read; a traceback for a wrong path."""
    path, trap = tmp_path / "checkpoint.pt", tmp_path / "trap"
    if kind == "text":
        path.write_text("hello")
    elif kind == "evil":
        torch.save({"algo": classic.__name__, "args": {}, "agent": Evil(trap)}, path)
    else:
        torch.save({"algo": "ppo_continuous", "args": {}}, path)
    with pytest.raises(SystemExit) as stopped:
        classic.train(tiny(classic, tmp_path, resume=str(path)))
    (line,) = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and "--resume" in line and str(path) in line
    assert not trap.exists() and not (tmp_path / "runs").exists()


# ---- what is learned from ----


def batches(algo, monkeypatch, folder, **flags) -> list:
    """What reaches update() on CounterDiscrete, pictures as the numbers they show, and the summary."""
    seen = []

    def keep(*args):
        (batch,) = (arg for arg in args if isinstance(arg, tuple))
        valid = next(
            (arg for arg in args if torch.is_tensor(arg)), slice(None)
        )  # ppo_pixels.py leaves out rows later
        shown = [
            tensor[:, 0, ::12, 0].float() - 1 if tensor.dtype == torch.uint8 else tensor
            for tensor in batch
        ]
        seen.append([tensor[valid].clone() for tensor in shown])

    spy(monkeypatch, algo, "update", keep)
    Counter.rows.clear()
    seen.append(algo.train(tiny(algo, folder, env_id="CounterDiscrete-v0", **flags)))
    return seen


@only("ppo", "ppo_pixels")
def test_ppo_logs_and_trains_on_valid_rows(classic, monkeypatch, tmp_path):
    """The numbers are those of test_rollout.py. Would break: a reset row that is trained on or counted."""
    flags = {"norm_reward": False, "total_timesteps": 25}
    flags |= {"norm_obs": False} if hasattr(classic.Args, "norm_obs") else {}
    *rollouts, summary = batches(classic, monkeypatch, tmp_path, **flags)
    logged = scalars(run_folder(tmp_path))
    assert logged["charts/episodic_return"] == [(13, 8.0), (25, 12.0)]
    assert logged["charts/episodic_length"] == [(13, 3.0), (25, 4.0)]
    assert sorted(summary["eval_returns"]) == [6.0, 14.0]
    played = {
        tuple(obs): int(action[0] > 0) for obs, action, _ in Counter.rows[:25]
    }  # the rest is the evaluation
    for x, actions, *rest in rollouts:
        assert actions.dtype == torch.int64 and all(len(tensor) == len(x) for tensor in rest)
        assert [played[tuple(row.tolist())] for row in x] == actions.tolist()
    assert [len(batch[0]) for batch in rollouts] == [13, 12]


@pytest.mark.parametrize("name", ["ppo", "reinforce"])
def test_policy_is_a_categorical(name):
    """Would break: a log-probability or entropy that is not the softmax's, a draw from something else."""
    algo = load(name)
    agent, x = algo.Agent(3, 4, algo.Args()), torch.randn(6, 3)
    for parameter in agent.actor.parameters():
        parameter.data += 0.5 * torch.randn_like(parameter)
    theirs, action = (
        torch.distributions.Categorical(logits=agent.actor(x)),
        torch.tensor([0, 1, 2, 3, 0, 1]),
    )
    same, logprob, entropy = agent.get_action(x, action)
    assert same is action
    torch.testing.assert_close(logprob, theirs.log_prob(action))
    torch.testing.assert_close(entropy, theirs.entropy())
    gradients = [torch.autograd.grad(p.sum(), agent.actor[0].weight, retain_graph=True)[0]
                 for p in (logprob + entropy, theirs.log_prob(action) + theirs.entropy())]  # fmt: skip
    torch.testing.assert_close(*gradients)
    draws = torch.stack([agent.get_action(x)[0] for _ in range(4000)])
    shares = torch.nn.functional.one_hot(draws, 4).float().mean(0)
    torch.testing.assert_close(
        shares, theirs.probs.detach(), atol=0.035, rtol=0
    )  # 4 deviations of 0.5 / 4000^0.5


@only("reinforce")
def test_reinforce_learns_from_one_whole_episode_of_each_environment(
    classic, monkeypatch, tmp_path
):
    """With gamma 1/2. The first reset is the seeded one, so that the first update has episode 1: id 0 is paid 1 2 and
    id 1 is paid 2 3 4; then, id 0 having gone on while it waited, episode 3 with 1 2 3, and episode 2 with 2 3 4 5 6.
    Would break: steps after the end, an episode cut short, a return that runs on into the next episode."""
    by_hand = [
        {(0, 0): 2, (0, 1): 2, (1, 0): 4.5, (1, 1): 5, (1, 2): 4},
        {
            (0, 0): 2.75,
            (0, 1): 3.5,
            (0, 2): 3,
            (1, 0): 5.5,
            (1, 1): 7,
            (1, 2): 8,
            (1, 3): 8,
            (1, 4): 6,
        },
    ]
    *rollouts, summary = batches(classic, monkeypatch, tmp_path, total_timesteps=13, gamma=0.5)
    for expected, (obs, action, target) in zip(by_hand, rollouts, strict=True):
        assert {(int(row[0]), int(row[1])): float(g) for row, g in zip(obs, target)} == expected
        assert len(obs) == len(expected) == len(action)
    logged = scalars(run_folder(tmp_path))
    assert logged["charts/episodic_return"] == [(5, 6.0), (13, 13.0)]
    assert logged["charts/episodic_length"] == [(5, 2.5), (13, 4.0)]
    assert summary["global_step"] == 13


@only("reinforce")
@pytest.mark.parametrize("baseline", ["value", "none"])
@pytest.mark.parametrize("norm_adv", [True, False])
def test_reinforce_gradient_by_hand(classic, baseline, norm_adv):
    """Row by row: (G - b) times the gradient of log pi, and the value's own error; none from one to the other."""
    args = classic.Args(baseline=baseline, norm_adv=norm_adv, vf_coef=0.7)
    agent, n = classic.Agent(3, 4, args).double(), 12
    obs, action, target = (
        torch.randn(n, 3).double(),
        torch.randint(4, (n,)),
        3 * torch.randn(n).double(),
    )
    loss, _ = classic.reinforce_loss(agent, args, obs, action, target)
    loss.backward()
    with torch.no_grad():
        advantage = target - (agent.critic(obs)[:, 0] if baseline == "value" else 0)
    if norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    actor, critic = agent.actor[0].weight, agent.critic[0].weight
    by_hand = [torch.zeros_like(actor), torch.zeros_like(critic)]
    for i in range(n):
        logprob = agent.actor(obs[i]).softmax(-1)[action[i]].log()
        by_hand[0] -= advantage[i] / n * torch.autograd.grad(logprob, actor)[0]
        error = 0.7 * 0.5 / n * (agent.critic(obs[i])[0] - target[i]) ** 2
        by_hand[1] += torch.autograd.grad(error, critic)[0]
    torch.testing.assert_close(actor.grad, by_hand[0])
    torch.testing.assert_close(
        critic.grad, by_hand[1]
    )  # the value is learned also where nothing is subtracted
    one = classic.Args(num_envs=1)
    assert classic.reinforce_loss(agent, one, obs[:1], action[:1], target[:1])[
        0
    ].isfinite()  # nothing to standardise


@only("reinforce")
def test_returns_by_hand(classic):
    """Rewards 1 2 3 and 4 0 0, gamma 1/2."""
    returns = classic.compute_returns(torch.tensor([[1, 4], [2, 0], [3, 0.0]]), 0.5)
    assert torch.equal(returns, torch.tensor([[2.75, 4], [3.5, 0], [3, 0]]))


# ---- DQN ----


@only("dqn")
def test_best_model(classic, monkeypatch, tmp_path):
    """Would break: the last model kept in place of the best, a score of the episodes that chose it, a resumed run that
    forgets how good the best one was."""
    scores, seen = iter([3.0, 9.0, 9.0, 5.0, 7.0, 8.0, 4.0]), []

    def evaluate(agent, envs, obs, stop=()):
        seen.append((agent.network[0].weight.detach().clone(), np.array(obs)))
        return [next(scores)] * envs.num_envs

    monkeypatch.setattr(classic, "evaluate", evaluate)
    flags = {"eval_frequency": 16, "learning_rate": 0.1, "train_frequency": 2}
    summary = classic.train(tiny(classic, tmp_path, **flags))
    run = run_folder(tmp_path)
    best = torch.load(run / "best.pt", weights_only=True)
    assert len(seen) == 5 and [*scores] == [8.0, 4.0]
    weights, shown = zip(*seen)
    assert torch.equal(best["agent"]["network.0.weight"], weights[1]) and torch.equal(
        weights[4], weights[1]
    )
    assert not any(torch.equal(weights[1], weights[i]) for i in (0, 2, 3))
    assert (best["eval_return_mean"], best["args"]["eval_frequency"]) == (9.0, 16) and 30 < best[
        "global_step"
    ] < 40
    assert (
        all(np.array_equal(shown[0], shown[i]) for i in (1, 2, 3))
        and not np.isin(shown[4], shown[0]).any()
    )
    assert (summary["eval_returns"], summary["best_returns"]) == ([5.0, 5.0], [7.0, 7.0])
    assert summary["best_return_mean"] == 7.0
    assert torch.equal(read_checkpoint(run)["agent"]["network.0.weight"], weights[3])

    scores = iter([8.0, 4.0])
    classic.train(
        tiny(
            classic, tmp_path, resume=str(run), total_timesteps=80, **flags | {"eval_frequency": 0}
        )
    )
    assert torch.equal(
        torch.load(run / "best.pt", weights_only=True)["agent"]["network.0.weight"], weights[1]
    )
    assert torch.equal(seen[-1][0], weights[1])

    scores = iter([2.0, 1.0])  # of other episodes: no longer below the best one's 9
    flags |= {"eval_frequency": 0, "eval_episodes": 3}
    classic.train(tiny(classic, tmp_path, resume=str(run), total_timesteps=96, **flags))
    assert torch.load(run / "best.pt", weights_only=True)["eval_return_mean"] == 2.0
    assert not torch.equal(seen[-1][0], weights[1])


@only("dqn", "dqn_pixels")
def test_replay_holds_what_happened(classic, monkeypatch, tmp_path):
    """Would break: a next observation of another episode, a reset row, a row that is overwritten or not there yet."""
    *drawn, _ = batches(
        classic, monkeypatch, tmp_path, total_timesteps=600, batch_size=16, train_frequency=2
    )
    kinds = set()
    for obs, next_obs, action, reward, terminal in drawn:
        for (i, step, episode), following, did, paid, ends in zip(*(t.tolist() for t in (obs, next_obs, action)),
                                                                  reward.tolist(), terminal.tolist()):  # fmt: skip
            length = Counter.LENGTHS[int(episode) % 3] + i
            assert (
                step < length
                and following == [i, step + 1, episode]
                and paid == step + 1 + i
                and did in (0, 1)
            )
            assert ends == (step + 1 == length and episode % 2 == 0)
            kinds.add((i, step + 1 == length, ends))
    assert kinds == {
        (i, *ends) for i in (0.0, 1.0) for ends in ((False, 0.0), (True, 0.0), (True, 1.0))
    }


@only("dqn")
def test_replay_draws_evenly_and_forgets(classic):
    """Would break: rows near a reset drawn more often, rows that left the ring, the newest row."""
    np.random.seed(0)
    replay, number = classic.Replay(10, 2, 1), 0
    for row in range(27):
        obs = np.array([[number], [number + 1]])
        valid = np.array([row % 4 != 0, True])
        replay.add(obs, [0, 1], [number, number + 1], [0, 1], valid)
        number += 2
    obs, next_obs, action, reward, terminal = replay.sample(40_000)
    rows, counts = np.unique(reward, return_counts=True)
    expected = [n for n in range(34, 52) if n % 2 or n // 2 % 4]
    assert (
        rows.tolist() == expected
        and torch.equal(obs[:, 0], reward)
        and torch.equal(next_obs, obs + 2)
    )
    mean = 40_000 / len(expected)
    assert ((counts - mean) ** 2 / mean).sum() < len(expected) + 4 * (
        2 * len(expected)
    ) ** 0.5  # chi-square
    assert torch.equal(action, reward.long() % 2) and torch.equal(terminal, reward % 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "least"),
    [
        ("ppo", {"total_timesteps": 200_000}, 475),
        ("reinforce", {"total_timesteps": 200_000}, 400),
        ("dqn", {"total_timesteps": 100_000, "eval_frequency": 10_000, "eval_episodes": 20}, 400),
    ],
)
def test_cartpole(name, flags, least, tmp_path):
    """Would break: anything that is too small for the probe to see."""
    algo = load(name)
    summary = algo.train(algo.Args(env_id="CartPole-v1", runs_dir=str(tmp_path), **flags))
    assert summary.get("best_return_mean", summary["eval_return_mean"]) >= least


def test_tanh():
    """Would break: another function than tanh, another derivative."""
    algo = load("ppo")
    x = torch.cat([torch.linspace(-100, 100, 401), torch.linspace(-1, 1, 401)]).requires_grad_()
    weights = torch.randn(x.shape)
    results = [
        (y, *torch.autograd.grad((weights * y).sum(), x)) for y in (algo.Tanh()(x), x.tanh())
    ]
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    exact = x.detach()[::40].double().requires_grad_()
    assert torch.autograd.gradcheck(algo.Tanh(), exact)


@pytest.mark.parametrize("double", [False, True])
def test_many_batches_are_many_updates(double):
    """Would break: updates of a row that share a step, a gradient, a batch or the next values of one of them."""
    algo, results = load("dqn"), []
    args = algo.Args(batch_size=8, double_dqn=double, learning_rate=0.01)
    batch = (
        torch.randn(32, 4),
        torch.randn(32, 4),
        torch.randint(2, (32,)),
        torch.randn(32),
        (torch.rand(32) < 0.3),
    )
    batch = (*batch[:4], batch[4].float())
    for parts in (1, 4):
        torch.manual_seed(1)
        agent, target_agent = algo.Agent(4, 2, args), algo.Agent(4, 2, args)
        optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate)
        pieces = zip(*(tensor.chunk(parts) for tensor in batch))
        metrics = [algo.update(agent, target_agent, optimizer, args, piece) for piece in pieces]
        results.append((torch.stack(metrics).mean(0), *(p.detach() for p in agent.parameters())))
    for whole, single in zip(*results):
        torch.testing.assert_close(whole, single)
    assert optimizer.state[next(agent.parameters())]["step"] == 4
