"""The runners in benchmarks/ leave what scripts/plot.py reads."""

import importlib
import itertools
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
import torch
import tyro
from conftest import ROOT, load
from plainrl_tools.common import load as load_path


@pytest.mark.parametrize("goal, minutes, steps", [(-2000.0, 60.0, 8192), (0.0, 1e-9, 0)])
def test_a_peer_stops_at_the_goal_or_in_time(tmp_path, monkeypatch, goal, minutes, steps):
    """Would break: a whole run of half an hour behind a goal that was met; a limit that nobody reads."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks/peers/sb3_ppo.py")])
    sb3_ppo = importlib.import_module("sb3_ppo")
    goals = importlib.import_module("time_to_return").GOALS
    monkeypatch.setitem(goals, "Pendulum-v1", goal)
    monkeypatch.setattr("plainrl_tools.peers.window_of", lambda *_: 8000)
    flags = {"env_id": "Pendulum-v1", "total_timesteps": 100_000, "eval_episodes": 1}
    args = sb3_ppo.Args(until_goal=minutes, runs_dir=str(tmp_path), **flags)
    assert sb3_ppo.train(args)["global_step"] == steps + 4  # one step of 4 environments later


@pytest.fixture
def sb3_atari(monkeypatch):
    return importlib.import_module("sb3_atari")


def test_fast_setting_of_a_peer(sb3_atari):
    """Would break: a peer beside ours with other minibatches or another rate; --fast that nobody reads."""
    game, steps = "BreakoutNoFrameskip-v4", 1_000_000
    fast, published = (sb3_atari.ours("PPO", game, steps, steps, fast) for fast in (True, False))
    rates = [settings.pop("learning_rate")(1.0) for settings in (fast, published)]
    assert rates == [5e-4, 2.5e-4]
    changed = {key: fast[key] for key in fast if fast[key] != published[key]}
    assert changed == {"n_epochs": 1, "batch_size": 64}
    fast, published = (sb3_atari.ours("PPO", "PongNoFrameskip-v4", steps, steps, x) for x in (1, 0))
    changed = {key: fast[key] for key in fast if fast[key] != published[key]}
    assert changed.pop("learning_rate")(1.0) == 5e-4
    assert changed == {"n_envs": 16, "n_epochs": 2, "batch_size": 128, "clip_range": 0.2}


def test_flags_of_a_fast_setting(sb3_atari):
    """Would break: speed.py's cases with a flag that the command line does not take."""
    import speed

    for name, (file, _, flags) in speed.CASES["atari"].items():
        args = tyro.cli(load(file.removesuffix(".py")).Args, args=speed.words_of(flags))
        assert {key: getattr(args, key) for key in flags} == flags, name
    assert "--no-clip-vloss" in speed.words_of(speed.FAST)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"algo": "A2C", "fast": True}, "--fast is of PPO, not of A2C"),
        ({"schedule_timesteps": 9}, "--schedule-timesteps: at least --total-timesteps"),
        ({"own_defaults": 4, "fast": True}, "--fast changes what --own-defaults keeps"),
    ],
)
def test_flags_of_a_peer_do_something(sb3_atari, capsys, flags, words):
    """Would break: a flag that is taken and not read; a learning rate below zero."""
    with pytest.raises(SystemExit):
        sb3_atari.train(sb3_atari.Args(**flags))
    assert words in capsys.readouterr().err


def test_own_defaults_of_a_peer(sb3_atari, monkeypatch):
    """Would break: a comparison with another library's defaults that has one of ours."""
    monkeypatch.setattr("sb3_ppo.run", lambda *given: given[3:5])
    settings, envs = sb3_atari.train(sb3_atari.Args(algo="A2C", own_defaults=3))
    envs.close()
    assert (settings, envs.num_envs) == ({}, 3)


def test_a_peer_on_a_game_stops_in_time(sb3_atari, tmp_path, monkeypatch, capsys):
    """Would break: hours of a peer behind a limit that sb3_atari.py has and does not hand on; a game without a goal."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks/peers/sb3_atari.py")])
    args = sb3_atari.Args(until_goal=1e-9, eval_episodes=1, runs_dir=str(tmp_path))
    assert sb3_atari.train(args)["global_step"] == 8  # one step of 8 environments
    with pytest.raises(SystemExit):
        sb3_atari.train(sb3_atari.Args(until_goal=1.0, env_id="BeamRiderNoFrameskip-v4"))
    assert "BeamRiderNoFrameskip-v4 has no goal" in capsys.readouterr().err


def test_sb3_seeds(sb3_atari, monkeypatch, tmp_path):
    """Would break: environments, or games of the evaluation, that the runs of neighbouring seeds have in common, which
    makes an interval over seeds too narrow."""
    import sb3_ppo
    import stable_baselines3
    import stable_baselines3.common.env_util as env_util
    import stable_baselines3.common.vec_env as vec_env

    seen = []

    class Envs:
        def __init__(self, *args, n_envs, seed, **kwargs):
            self.num_envs, self.seed = n_envs, seed

    class Model:  # seeds its environments anew
        def __init__(self, policy, envs, seed, **kwargs):
            seen.extend(range(seed, seed + envs.num_envs))

        def learn(self, *args, callback):
            callback.marks, callback.last100 = [(0, 0)], []
            self.num_timesteps = 0

    def evaluate(model, envs, *args) -> list[float]:
        seen.extend(range(envs.seed, envs.seed + envs.num_envs))
        return [0.0]

    monkeypatch.setattr(env_util, "make_atari_env", Envs)
    monkeypatch.setattr(env_util, "make_vec_env", Envs)
    monkeypatch.setattr(vec_env, "VecFrameStack", lambda envs, stack: envs)
    monkeypatch.setattr(stable_baselines3, "PPO", Model)
    monkeypatch.setattr(sb3_atari, "evaluate", evaluate)
    monkeypatch.setattr(sb3_ppo, "evaluate", evaluate)
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks/peers/sb3_ppo.py")])
    for seed in (1, 2, 3):
        sb3_atari.train(sb3_atari.Args(seed=seed, runs_dir=str(tmp_path)))
        args = sb3_ppo.Args(seed=seed + 3, runs_dir=str(tmp_path))
        sb3_ppo.train_on(args, "PPO", {"n_envs": 64, "gamma": 0.99}, "stable_baselines3")
    assert len(seen) == 3 * (8 + 30 + 64 + 100)
    assert len(set(seen)) == len(seen)


def test_sb3_is_evaluated_by_whole_games(sb3_atari):
    """Would break: returns of single lives, of clipped rewards, or of several games of one environment."""

    class Lives:
        """Two environments; a life ends in every step, a game of environment i in every (i + 2)nd."""

        def reset(self):
            self.steps = 0
            return [0, 0]

        def step(self, actions):
            self.steps += 1
            ended = [self.steps % (i + 2) == 0 for i in range(2)]
            infos = [
                {"episode": {"r": 10 * self.steps + i}} if ends else {}
                for i, ends in enumerate(ended)
            ]
            return [0, 0], [1, 1], [True, True], infos

    class Model:
        def predict(self, obs, deterministic):
            return [0, 0], None

    assert sb3_atari.evaluate(Model(), Lives(), 2) == [20.0, 31.0]


def test_sb3_gets_our_settings_on_atari(sb3_atari):
    """Would break: a flag of ours that the peer does not get, or gets in another meaning."""
    ppo, a2c = (
        sb3_atari.ours(algo, "BreakoutNoFrameskip-v4", 4096, 8192) for algo in ("PPO", "A2C")
    )
    rates = [
        ppo["learning_rate"](1 - done / 4096) for done in (0, 1024, 2048, 4096)
    ]  # after that many steps
    assert rates == pytest.approx(
        [2.5e-4, 2.5e-4, 2.5e-4 * 7 / 8, 2.5e-4 * 5 / 8]
    )  # ours at the rollout's start
    assert a2c.pop("learning_rate")(0) == pytest.approx(7e-4 * (1 - (4096 - 80) / 8192))
    shared = {"gamma": 0.99, "max_grad_norm": 0.5, "ent_coef": 0.01, "vf_coef": 0.25}
    given = {key: value for key, value in ppo.items() if key != "learning_rate"}
    assert given == shared | {
        "n_envs": 8, "n_steps": 128, "n_epochs": 4, "batch_size": 256, "gae_lambda": 0.95, "clip_range": 0.1,
        "clip_range_vf": None, "normalize_advantage": True, "target_kl": None,
    }  # fmt: skip
    assert a2c == shared | {
        "n_envs": 16,
        "n_steps": 5,
        "vf_coef": 0.5,
        "rms_prop_eps": 1e-5,
    }  # of the whole squared error
    from stable_baselines3.common.utils import LinearSchedule

    dqn = sb3_atari.ours("DQN", "BreakoutNoFrameskip-v4", 800_000, 800_000)
    names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
    schedule = LinearSchedule(*(dqn[name] for name in names))
    epsilons = [schedule(1 - step / 800_000) for step in (80_000, 120_000, 160_000, 200_000)]
    assert epsilons == pytest.approx(
        [1.0, 0.505, 0.01, 0.01]
    )  # as --learning-starts, then over 10 %
    del dqn["exploration_initial_eps"], dqn["exploration_fraction"]
    assert dqn.pop("optimize_memory_usage") and dqn.pop("replay_buffer_kwargs")
    assert dqn == {
        "gamma": 0.99, "max_grad_norm": 10.0, "learning_rate": 1e-4, "n_envs": 8, "tau": 1.0, "batch_size": 32,
        "buffer_size": 1_000_000, "learning_starts": 80_000, "target_update_interval": 1000, "train_freq": 1,
        "gradient_steps": 2, "exploration_final_eps": 0.01,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["rpo/walk", "trust_region/analyse"])
def test_run_that_goes_on_is_not_finished(tmp_path, capsys, monkeypatch, name):
    """Would break: the agent of the middle of a run under the steps of its first summary."""
    module = load_path(ROOT / f"benchmarks/studies/{name}.py")
    run = {"algo": "ppo_continuous", "env_id": "BipedalWalker-v3", "seed": 1, "total_timesteps": 8}
    (tmp_path / "summary.json").write_text(json.dumps(run | {"args": {"total_timesteps": 8}}))
    (tmp_path / "config.json").write_text(json.dumps(run | {"args": {"total_timesteps": 16}}))
    with pytest.raises(SystemExit):
        module.main(module.Options((tmp_path,), output=tmp_path / "out.csv"))
    assert f"{tmp_path} is no finished run" in capsys.readouterr().err


def test_rows_in_float32(monkeypatch):
    """Would break: bfloat16 alone beside a peer in float32, one's ratio in the other's row, a peer that is faster with
    a process a game."""
    speed = importlib.import_module("speed")
    measured = {"ours": 800, "ours-float32": 500, "sb3-default-threads": 400, "sb3-1-thread": 250}
    for processes, ratios in ((200, ("2.0", "1.2")), (500, ("1.6", "1.0"))):
        sides = measured | {"bare": 4000}
        rows = [
            {"exp_name": f"A2C {side}", "metric": metric, "value": value}
            for side, value in sides.items()
            for metric in ("sps", "memory_mib")
        ]
        rows.append({"exp_name": "A2C sb3-processes", "metric": "sps", "value": processes})
        lines = [line.split(" | ") for line in speed.case_rows(rows, "Game", ("A2C",))]
        assert [(line[1], line[2].split()[0], line[4].split()[0]) for line in lines] == [
            ("A2C, identical", "800", ratios[0]),
            ("A2C, identical, float32", "500", ratios[1]),
        ]
        assert [line[6] for line in lines] == ["800, 400 |", "500, 400 |"]  # of one process


@pytest.mark.parametrize("settings", ["cleanrl", "ours"])
def test_settings_of_the_peer(settings, monkeypatch):
    """Would break: other settings than the published ones or ours, a learning rate that stays, pictures that nobody
    sees: stable-baselines3 asks for rgb_array, with which the lander keeps all its particles."""
    sb3_ppo = importlib.import_module("sb3_ppo")

    def settings_of(args, algo, policy, found, envs, evaluate, library):
        assert envs.get_attr("render_mode") == [None] * envs.num_envs
        return found

    monkeypatch.setattr(sb3_ppo, "run", settings_of)
    found = sb3_ppo.train(sb3_ppo.Args(settings=settings, env_id="Pendulum-v1"))
    args = load("ppo_continuous").Args()
    batch_size = args.num_envs * args.num_steps // args.num_minibatches
    expected = {
        "cleanrl": (2048, 64, 10, 0.2, 0.25, 3e-4, torch.nn.Tanh),
        "ours": (args.num_steps, batch_size, args.update_epochs, None, args.vf_coef / 2,
                 args.learning_rate, getattr(torch.nn, args.activation)),
    }[settings]  # fmt: skip
    names = ("n_steps", "batch_size", "n_epochs", "clip_range_vf", "vf_coef")
    networks, rate = found["policy_kwargs"], found["learning_rate"]
    assert (*map(found.get, names), rate(1.0), networks["activation_fn"]) == expected
    rollout = found["n_steps"] * {"cleanrl": 1, "ours": args.num_envs}[settings]
    share = rollout / sb3_ppo.Args.total_timesteps  # it asks after the first rollout, we before it
    assert rate(1 - share) == expected[5]
    assert rate(0.5) == pytest.approx(expected[5] * (0.5 + share)) and rate(-share) == 0
    assert networks["net_arch"] == {"pi": [64, 64], "vf": [64, 64]}


def test_settings_of_trpo(monkeypatch):
    """Would break: another setting than ours; the limit of the KL and the damping in our unit, a sum over the
    dimensions of the action, where sb3-contrib averages; values that are not trained as often."""
    sb3_trpo = importlib.import_module("sb3_trpo")
    found = {}

    def settings_of(args, algo, policy, settings, envs, evaluate, library):
        assert (algo, library, envs.num_envs) == ("TRPO", "sb3_contrib", 16)
        assert envs.norm_obs and envs.norm_reward
        found.update(settings)
        return {}

    monkeypatch.setattr(importlib.import_module("sb3_ppo"), "run", settings_of)
    sb3_trpo.train(sb3_trpo.Args(env_id="Walker2d-v5"))  # of 6 dimensions
    args = load("trpo_continuous").Args()
    assert found["target_kl"] == pytest.approx(args.max_kl / 6)
    assert found["cg_damping"] == pytest.approx(args.cg_damping / 6)
    assert (found["n_steps"], found["batch_size"]) == (128, 128)
    assert found["n_critic_updates"] == args.update_epochs
    model = importlib.import_module("sb3_contrib").TRPO(
        "MlpPolicy", gym.make("Walker2d-v5"), **found
    )
    assert (model.line_search_max_iter, model.line_search_shrinking_factor) == (10, 0.8)
    assert model.policy.log_std.exp().detach().unique().item() == pytest.approx(args.init_std)
    assert isinstance(model.policy.mlp_extractor.policy_net[1], torch.nn.Tanh)
    ours = torch.optim.Adam([torch.zeros(1)]).defaults["eps"]
    assert model.policy.optimizer.defaults["eps"] == 2 * ours


BAD = [
    ("studies/tuning/analyse", "nope.csv", "nope.csv is not a CSV file with the columns"),
    ("studies/ablations/analyse", "poor.csv --output file/x.csv", "file cannot be written: Not a"),
    ("studies/ablations/symptoms", "poor.csv --output folder", "--output folder is a folder"),
    ("time_to_return", "poor.csv --figure x.csv", "--figure x.csv: give a file name that ends in"),
    ("studies/rpo/analyse", "", "give the CSV files"),
    ("scaling", "--table nope.csv --figure x.png", "nope.csv is no table of this script"),
    ("studies/trust_region/analyse", "", "give run folders"),
    ("studies/rpo/walk", "folder --episodes 0", "--episodes must be at least 1, not 0"),
    ("studies/continuous/pendulum_optimum", "--angles 0", "--angles must be at least 2, not 0"),
    ("studies/classic/env_speed", "--repeats 0", "--repeats must be at least 1, not 0"),
    ("peers/sb3_ppo", "--env-id Hopper-v5", "--env-id Hopper-v5 has no tuned settings here"),
    ("peers/sb3_atari", "--env-id FooNoFrameskip-v4", "--env-id FooNoFrameskip-v4: Environment"),
    ("speed", "--output folder", "--output folder is a folder"),
    ("gpu_pass", "--device cpu --folder nope", "--folder nope is no folder"),
    ("../docs/make_atari_stages", "x.png --env-id CartPole-v1", "CartPole-v1: not an Atari game"),
]


@pytest.mark.parametrize(("name", "flags", "words"), BAD)
def test_bad_input(name, flags, words, monkeypatch, tmp_path, capfd):
    """Would break: a traceback, a run folder without a run, an answer after an hour of work that cannot be written."""
    header = "exp_name,env_id,seed,step,metric,value,commit\n"
    (tmp_path / "poor.csv").write_text(f"{header}a-c,E,1,1,sps,1,c\n")
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    file = (ROOT / "benchmarks" / f"{name}.py").resolve()
    monkeypatch.setattr(sys, "argv", [str(file), *flags.split()])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(file), run_name="__main__")
    errors = [line for line in capfd.readouterr().err.splitlines() if "A.L.E" not in line]
    assert stopped.value.code == 2 and sorted(tmp_path.rglob("*")) == before
    assert len([line for line in errors if line.startswith(f"{file.name}: ")]) == 1
    assert words in errors[-1]


def test_scores_of_the_search():
    """Would break: a row of benchmarks/README.md that the committed runs do not give."""
    line = [sys.executable, ROOT / "benchmarks/studies/tuning/analyse.py"]
    table = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert len(table.splitlines()) == 15 and table in (ROOT / "benchmarks/README.md").read_text()


def logged_run(folder: Path, name: str, seed: int, scalars, score: float, training=1.0) -> None:
    """A run folder of 80 steps as a file leaves it; scalars: name -> (step, value)s."""
    from torch.utils.tensorboard import SummaryWriter

    run_dir = folder / f"Pendulum-v1__{name}__{seed}__0"
    args = {"exp_name": name, "seed": seed}
    summary = {"algo": "ppo", "env_id": "Pendulum-v1", "seed": seed, "args": args, "commit": "abc"}
    with SummaryWriter(run_dir) as writer:
        for tag, points in scalars.items():
            for step, value in points:
                writer.add_scalar(tag, value, step)
    (run_dir / "config.json").write_text(json.dumps(summary))
    summary |= {"total_timesteps": 80, "global_step": 80, "eval_return_mean": score, "sps": 1.0}
    summary |= {"train_return_last100": training, "eval_returns": [score], "wall_time_s": 1.0}
    (run_dir / "summary.json").write_text(json.dumps(summary))


def test_symptoms(tmp_path, capsys, monkeypatch):
    """By hand: of values 1 to 8 at steps 10 to 80 the second quarter has 3 and 4. Would break: another window, cases in
    another order, an incomplete set that is averaged."""
    symptoms = load_path(ROOT / "benchmarks/studies/ablations/symptoms.py")
    for case, seed in itertools.product(("good", "poor"), (1, 2)):
        score = seed if case == "good" else -10 * seed
        points = [(10 * i, i * seed) for i in range(1, 9)]
        scalars = {f"losses/{name}": points for name in symptoms.SCALARS}
        logged_run(tmp_path, f"ppo_continuous-{case}", seed, scalars, float(score))
    symptoms.main(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    cells = " | ".join(["3.5 to 7"] * len(symptoms.SCALARS))
    assert lines[2:] == [
        f"| good | 2 (1 to 2) | {cells} |",
        f"| poor | -15 (-20 to -10) | {cells} |",
    ]
    (tmp_path / "Pendulum-v1__ppo_continuous-poor__2__0" / "summary.json").unlink()
    with pytest.raises(SystemExit):
        symptoms.main(tmp_path)
    assert "ppo_continuous-poor, seed 2" in capsys.readouterr().err
    scalars = {f"losses/{name}": [(30, 1.0)] for name in symptoms.SCALARS}
    logged_run(tmp_path, "ppo_continuous-poor", 2, scalars, -7.0)
    again = tmp_path / "again/Pendulum-v1__ppo_continuous-poor__2__1"
    shutil.copytree(tmp_path / "Pendulum-v1__ppo_continuous-poor__2__0", again)
    summary = json.loads((again / "summary.json").read_text())
    summary["args"]["device"] = "cpu"  # with other flags, so that it is no copy
    (again / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(SystemExit):
        symptoms.main(tmp_path)
    assert "ppo_continuous-poor Pendulum-v1 2: more than one run" in capsys.readouterr().err


def test_run_logs(tmp_path, capsys):
    """By hand: in two bins values 1 to 8 at steps 10 to 80 have the means 2 and 6 at 20 and 60; the value at step 40 is
    in the second bin. Would break: a point in another bin, an incomplete set that is exported."""
    run_logs = load_path(ROOT / "benchmarks/studies/pitfalls/run_logs.py")
    for seed in (1, 2):
        points = [(10 * i, i * seed) for i in range(1, 9)]
        logged_run(tmp_path / "runs", "case", seed, {"losses/entropy": points}, -3.0)
    for summary in (tmp_path / "runs").rglob("summary.json"):
        content = json.loads(summary.read_text()) | {"eval_return_std": 0.5}
        summary.write_text(json.dumps(content))
        (summary.parent / "config.json").write_text(json.dumps(content))  # as a run has it
    options = run_logs.Options(tmp_path / "runs", tmp_path / "out.csv", bins=2)
    run_logs.main(options)
    rows = run_logs.results.read_csv(tmp_path / "out.csv")
    entropy = [(row.seed, row.step, row.value) for row in rows if row.metric == "losses/entropy"]
    assert entropy == [(1, 20, 2.0), (1, 60, 6.0), (2, 20, 4.0), (2, 60, 12.0)]
    scores = [(row.metric, row.value) for row in rows if row.metric.startswith("eval")]
    assert scores == 2 * [("eval_return_mean", -3.0), ("eval_return_std", 0.5)]
    (tmp_path / "runs" / "Pendulum-v1__case__2__0" / "summary.json").unlink()
    with pytest.raises(SystemExit):
        run_logs.main(options)
    assert "case, seed 2" in capsys.readouterr().err
    options.stopped = True
    run_logs.main(options)
    rows = run_logs.results.read_csv(tmp_path / "out.csv")
    entropy = [row.value for row in rows if row.metric == "losses/entropy"]
    scores = [row.seed for row in rows if row.metric == "eval_return_mean"]
    assert entropy == [2.0, 6.0, 4.0, 12.0] and scores == [1]


def test_ablations(tmp_path, capsys, monkeypatch):
    """By hand: 100 points behind in each of eight pairs, p 2 / 2^8 times the comparisons of the question. Would break:
    a difference with the wrong sign, another correction, a run without a training return left out."""
    ablations = load_path(ROOT / "benchmarks/studies/ablations/analyse.py")
    names = sorted(
        {name for pairs in ablations.PLANNED.values() for pair in pairs for name in pair}
    )
    for name, seed in itertools.product(names, range(1, 9)):
        score = 10.0 * seed - 100 * name.startswith("reset")
        training = None if name == "reset_rollouts-short" else score
        scalars = {"losses/entropy": [(80, 1.5)], "charts/episodic_return": [(80, score)]}
        logged_run(tmp_path, name, seed, scalars, score, training)
    ablations.main(tmp_path, tmp_path / "out.csv")
    out = capsys.readouterr().out
    assert "| reset_rollouts-short | 8 | -55.0 [" in out and "| none ends |" in out
    pair = "| reset_rollouts-long | ppo_continuous-long | "
    assert f"{pair}0.016 | -100.0 [-100.0, -100.0] |" in out
    ablations.main(tmp_path / "out.csv")
    assert capsys.readouterr().out == out
    before = (tmp_path / "out.csv").read_bytes()
    for folder in tmp_path.glob("*unshuffled-short*"):
        shutil.rmtree(folder)
    with pytest.raises(SystemExit):
        ablations.main(tmp_path, tmp_path / "out.csv", tmp_path / "out.png")
    assert "has no runs of unshuffled-short" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_bytes() == before and not (tmp_path / "out.png").exists()
    ablations.main(ROOT / "benchmarks/studies/ablations/results/ablations.csv")
    page = (ROOT / "docs/ablations.md").read_text()
    assert all(
        block in page for block in capsys.readouterr().out.strip().split("\n\n") if block[0] == "|"
    )


def test_seeds_at_once(tmp_path, monkeypatch):
    """Would break: a speed that leaves out runs, or a file that plot.py's reader refuses."""
    import seeds
    from plainrl_tools import results

    output = tmp_path / "seeds.csv"
    args = seeds.Args(("Pendulum-v1",), (2,), rounds=1, steps=2048, output=output)
    seeds.main(args)
    rows = results.read_csv(output)
    assert [row.exp_name for row in rows] == ["ppo_continuous", "ppo_continuous_seeds-2"]
    assert all(row.metric == "sps" and row.value > 0 for row in rows)


def test_same_actions_in_both_simulators(capsys):
    """Would break: a state that is set wrongly, which would look like a difference between the simulators."""
    replay = load_path(ROOT / "benchmarks/studies/continuous/replay.py")
    replay.compare("Hopper-v5")
    replay.compare_pusher(0, "as it is")
    hopper, pusher = capsys.readouterr().out.splitlines()
    assert float(hopper.split()[-1]) < 1e-9
    assert float(pusher.split("at most ")[1].split()[0]) < 0.05
