"""Agents of all kinds of files, played by scripts/enjoy.py: those in models/, which are what their evaluation says, and
small ones of each network."""

import copy
import json
import re

import enjoy
import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs  # noqa: F401  (registers ShortBreakout-v4)
from plainrl_tools.common import ROOT, load
from test_enjoy import SEED, play, printed

make_models = load(ROOT / "benchmarks" / "make_models.py")
EVALUATION_SEED = 10_007 % 2**30 + 2**30  # of the evaluation of a run with seed 1


@pytest.mark.parametrize("name", make_models.MODELS)
def test_model_plays(name, capsys):
    """Would break: a model that is missing, or that the file of today no longer reads."""
    run = ROOT / "models" / name
    summary = json.loads((run / "summary.json").read_text())
    assert (run / "checkpoint.pt").stat().st_size < 1_000_000
    assert summary["algo"] == make_models.MODELS[name].split()[0]
    enjoy.main(enjoy.Options(run=run, render=False, seeds=(EVALUATION_SEED,)))
    assert "return" in capsys.readouterr().out
    row = f"| {summary['eval_return_mean']:.1f} ± {summary['eval_return_std']:.1f} |"
    (line,) = (
        line
        for line in (ROOT / "models/README.md").read_text().splitlines()
        if line.startswith(f"| `{name}` |")
    )
    assert row in line


@pytest.mark.parametrize("name", ["CartPole-v1", "RecallCue-v0", "Switchboard-v0"])
def test_model_reaches_its_evaluation(name):
    """Would break: weights of another run than the one that the table shows."""
    module, args, weights = enjoy.load_run(ROOT / "models" / name)
    envs, obs = module.make_envs(args, "gymnasium", 100, EVALUATION_SEED)
    agent = enjoy.make_agent(module, args, weights, envs, obs)
    returns = module.evaluate(agent, envs, obs)
    summary = json.loads((ROOT / "models" / name / "summary.json").read_text())
    assert returns.mean() == pytest.approx(summary["eval_return_mean"])


def test_files_with_a_bonus_draw(tmp_path, capsys):
    """Would break: --stochastic that plays the mode where evaluate() asks get_mode for it."""
    module = load(ROOT / "algos/ppo_rnd.py")
    args = module.Args(env_id="CartPole-v1")
    agent = module.Agent(4, gym.spaces.Discrete(2), args)
    saved = {"algo": "ppo_rnd", "args": vars(args), "agent": agent.state_dict()}
    torch.save(saved, tmp_path / "checkpoint.pt")
    lengths = []
    for stochastic in (False, True):
        play(tmp_path, episodes=6, stochastic=stochastic)
        lengths.append(re.findall(r"length (\d+)", capsys.readouterr().out))
    assert lengths[0] != lengths[1]


@pytest.mark.parametrize("name", ["ppo", "ppo_lstm", "dqn", "pqn"])
def test_discrete_actions(name, tmp_path, capsys):
    """Would break: an Agent of other parameters that cannot be rebuilt; best.pt or an earlier checkpoint that cannot be
    played; an agent with memory that forgets; draws that are the mode's actions."""
    module = load(ROOT / "algos" / f"{name}.py")
    small = dict(
        env_id="CartPole-v1",
        total_timesteps=600,
        eval_episodes=3,
        runs_dir=str(tmp_path),
        learning_rate=3e-3,
        eval_frequency=200,
        keep_checkpoints=1,
    )
    own = {"learning_starts": 200} if name == "dqn" else {"num_envs": 8}
    module.train(module.Args(**small, **own))
    (run,) = tmp_path.iterdir()
    capsys.readouterr()
    files = sorted(path.name for path in run.glob("*.pt"))
    assert len(files) == 3
    for file in files:
        saved, expected = torch.load(run / file, weights_only=True), []
        args = module.Args(**saved["args"])
        agent = module.Agent(4, gym.spaces.Discrete(2), args)
        agent.load_state_dict(saved["agent"])
        for i in range(3):
            expected += [*module.evaluate(agent, *module.make_envs(args, "gymnasium", 1, SEED + i))]
        play(run / file, episodes=3)
        found = re.findall(r"return ([\d.]+), length (\d+)", capsys.readouterr().out)
        assert (
            [float(value) for value, _ in found]
            == [float(length) for _, length in found]
            == expected
        )
    if name in ("dqn", "pqn"):
        with pytest.raises(SystemExit):
            play(run, stochastic=True)
        assert "--stochastic" in capsys.readouterr().err
    else:
        play(run, episodes=8, stochastic=True)
        drawn = re.findall(r"return ([\d.]+)", capsys.readouterr().out)
        play(run, episodes=8)
        assert drawn != re.findall(r"return ([\d.]+)", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["sac_continuous", "td3_continuous"])
def test_files_with_a_replay_buffer(name, tmp_path, capsys):
    """Would break: an Agent that cannot be rebuilt; --stochastic that plays the mean action, or another noise than
    training's."""
    module = load(ROOT / "algos" / f"{name}.py")
    args = module.Args(env_id="Pendulum-v1", precision="float32")
    envs, _ = module.make_envs(args, "gymnasium", 1, SEED)
    agent = module.Agent(3, envs.single_action_space, args, "float32")
    saved = {"algo": name, "args": vars(args), "agent": agent.state_dict()}
    torch.save(saved, tmp_path / "checkpoint.pt")

    trained = copy.deepcopy(agent)

    def drawn(obs):
        action = trained.get_action(obs)
        return action[0] if name == "sac_continuous" else action

    for stochastic in (False, True):
        if stochastic:
            agent.get_mean_action = drawn
        expected = []
        for seed in (SEED, SEED + 1):
            envs, obs = module.make_envs(args, "gymnasium", 1, seed)
            torch.manual_seed(seed)
            expected += [*module.evaluate(agent, envs, obs)]
        play(tmp_path, stochastic=stochastic)
        assert printed(capsys) == pytest.approx(expected, abs=0.02)


ATARI = {
    name: load(ROOT / "algos" / f"{name}.py") for name in ("ppo_atari", "dqn_atari", "pqn_atari")
}


@pytest.fixture(params=ATARI)
def game(request, tmp_path):
    """A run of an Atari file that has saved a checkpoint, as far as enjoy.py can see; its file, arguments and agent."""
    module = ATARI[request.param]
    args = module.Args(env_id="ShortBreakout-v4", precision="float32")
    agent = module.Agent(gym.spaces.Discrete(4), args, "float32")
    content = {"algo": request.param, "args": vars(args), "agent": agent.state_dict()}
    (tmp_path / "run").mkdir()
    torch.save(content, tmp_path / "run" / "checkpoint.pt")
    return tmp_path / "run", module, args, agent


def test_atari_returns_and_video(game, tmp_path, capsys, monkeypatch):
    """The returns are those of the file's own evaluate(), and the video shows the colours of the very games."""
    imageio, cv2 = pytest.importorskip("imageio.v3"), pytest.importorskip("cv2")
    run, module, args, agent = game
    seen, returns = [], []
    for seed in (SEED, SEED + 1):
        envs, obs = module.make_envs(args, 1, seed)
        seen.append(obs[0, -1])
        step = envs.step

        def keep(action, step=step):
            result = step(action)
            seen.append(result[0][0, -1])
            return result

        monkeypatch.setattr(envs, "step", keep)
        torch.manual_seed(seed)
        returns += [*module.evaluate(agent, envs, obs)]
    play(run, video=tmp_path / "out.mp4")
    played = re.findall(r"return ([\d.]+), length (\d+)", capsys.readouterr().out)
    assert [float(value) for value, _ in played] == returns
    frames = imageio.imread(tmp_path / "out.mp4")
    assert len(frames) == len(seen) == sum(int(length) + 1 for _, length in played)
    assert frames.shape[1:] == (210, 160, 3) and imageio.immeta(tmp_path / "out.mp4")["fps"] == 15
    assert (frames.max(-1).astype(int) - frames.min(-1)).max() > 100  # in colour
    errors = []  # of each frame from what the agent saw then, and from what it saw first
    for frame, grey in zip(frames, seen):
        small = cv2.resize(
            cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA
        ).astype(int)
        errors.append([np.abs(small - grey).mean(), np.abs(small - seen[0]).mean()])
    assert np.max(errors, axis=0)[0] < 3 and np.divide(*np.sum(errors, axis=0)) < 0.7, np.sum(
        errors, axis=0
    )
