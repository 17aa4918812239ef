"""scripts/enjoy.py against a plain loop over the bare environment, its video read back, and its error messages."""

import copy
import gc
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import enjoy
import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs  # noqa: F401  (registers ShortBreakout-v4)
from conftest import OFF_POLICY
from plainrl_tools.common import ROOT, load

ALGO = ROOT / "algos" / "ppo_continuous.py"
SEED = 77
algo = load(ALGO)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    args = dict(
        env_id="Pendulum-v1", total_timesteps=3200, num_envs=8, num_steps=50, num_minibatches=4
    )
    algo.train(
        algo.Args(**args, update_epochs=2, eval_episodes=2, device="cpu", runs_dir=str(runs))
    )
    return next(runs.iterdir())


def play(run: Path, **options) -> None:
    enjoy.main(enjoy.Options(run=run, **{"episodes": 2, "seed": SEED, "render": False} | options))


def test_policy_in_own_python(run, tmp_path):
    """The block of docs/runs.md. Would break: its names, or another action than the evaluation's."""
    block = (ROOT / "docs/runs.md").read_text().split("```python\n")[1].split("```")[0]
    found = {}
    exec(block.replace("runs/RUN", str(run)), found)
    agent, x = found["agent"], found["x"]
    (raw,) = found["obs"]
    right = (torch.tensor(raw) - agent.obs_rms.mean) / (agent.obs_rms.var + 1e-8).sqrt()
    assert torch.allclose(x[0], right.clamp(-10, 10)) and found["action"].shape == (1,)
    with torch.inference_mode():
        assert found["action"] == agent.actor_mean(right).clamp(-2, 2).numpy()


OTHER_FILES = {"ppo": "CartPole-v1", "dqn": "CartPole-v1", "sac_continuous": "Pendulum-v1"}
OTHER_FILES |= dict.fromkeys(("td3_continuous", "ddpg_continuous"), "Pendulum-v1")


@pytest.mark.parametrize("name", OTHER_FILES)
def test_policies_of_other_files_in_own_python(name, tmp_path):
    """The second block of docs/runs.md. Would break: lines that do not fit the first block, or an action that the
    environment does not take."""
    file, env_id = load(ROOT / f"algos/{name}.py"), OTHER_FILES[name]
    args, extra = (
        file.Args(env_id=env_id),
        ["float32"] if OTHER_FILES[name] == "Pendulum-v1" else [],
    )
    with gym.make(env_id) as env:
        agent = file.Agent(env.observation_space.shape[0], env.action_space, args, *extra)
    saved = {"env_id": env_id, "args": vars(args), "agent": agent.state_dict()}
    torch.save(saved, tmp_path / "checkpoint.pt")
    first, second = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/runs.md").read_text(), re.DOTALL
    )
    first = first.replace("ppo_continuous", name).replace("runs/RUN", str(tmp_path))
    if extra:
        first = first.replace('Args(**saved["args"]))', 'Args(**saved["args"]), "float32")')
    (lines,) = [part for part in second.split("    # ") if f"{name}.py" in part.split("\n")[0]]
    found = {}
    exec("\n".join([*first.splitlines()[:-2], *lines.splitlines()[1:]]), found)
    assert found["env"].action_space.contains(found["action"])


def printed(capsys) -> list[float]:
    return [
        float(value)
        for value in re.findall(r"return (-?[\d.]+), length 200", capsys.readouterr().out)
    ]


@torch.inference_mode()
def own_returns(run: Path, episodes: int, sample: bool = False) -> list[float]:
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    env, returns = gym.make("Pendulum-v1"), []
    agent = algo.Agent(3, env.action_space, algo.Args(**checkpoint["args"]))
    agent.load_state_dict(checkpoint["agent"])
    for i in range(episodes):
        (obs, _), total, done = env.reset(seed=SEED + i), 0.0, False
        while not done:
            x = (torch.tensor(obs) - agent.obs_rms.mean) / (agent.obs_rms.var + 1e-8).sqrt()
            action = agent.actor_mean(x.clamp(-10, 10)).clamp(-2, 2).numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
        returns.append(total)
    return returns


def test_returns_are_those_of_a_plain_loop(run, capsys):
    expected = own_returns(run, episodes=3)
    assert len({round(value, 2) for value in expected}) == 3  # each episode has a seed of its own
    play(run, episodes=3)
    out = capsys.readouterr().out
    assert [float(v) for v in re.findall(r"return (-?[\d.]+), length 200", out)] == pytest.approx(
        expected, abs=0.02
    )
    (mean_and_std,) = re.findall(r"mean (-?[\d.]+) \+- ([\d.]+) over 3 episodes", out)
    assert [float(v) for v in mean_and_std] == pytest.approx(
        [np.mean(expected), np.std(expected)], abs=0.02
    )


def test_checkpoint_path_and_renamed_copy(run, tmp_path, capsys):
    shutil.copy(ALGO, tmp_path / "my_copy.py")
    play(run / "checkpoint.pt", algo_file=tmp_path / "my_copy.py")
    assert printed(capsys) == pytest.approx(own_returns(run, episodes=2), abs=0.02)


def test_module_beside_the_script(tmp_path):
    """Would break: a copy that python runs and probe.py, sweep.py and enjoy.py refuse, or one that gets the module of
    this name that lies beside another copy, or in scripts/."""
    before = sys.modules["common"], [*sys.path]
    for name in ("one", "other", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "common.py").write_text(f"word = {name!r}\n")
        (tmp_path / name / "mine.py").write_text("from common import word\n")
        assert load(tmp_path / name / "mine.py").word == name
    assert before == (sys.modules["common"], sys.path)


def test_another_text_than_the_run_s_is_named(run, tmp_path, capsys):
    """Would break: a changed network or mapping of actions in a copy of the same name, and a return of today's file."""
    play(run)
    assert "--algo-file" not in capsys.readouterr().err
    shutil.copytree(run, folder := tmp_path / "run")
    copy = folder / ALGO.name
    copy.write_text(copy.read_text() + "# changed\n")
    play(folder)
    assert f"--algo-file {copy}" in capsys.readouterr().err
    play(folder, algo_file=copy)
    assert "--algo-file" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ppo_rnd", "ppo_icm"])
def test_files_with_a_bonus_draw(name, tmp_path, capsys):
    """Would break: --stochastic that plays the mode where evaluate() asks get_mode for it."""
    module = load(ROOT / "algos" / f"{name}.py")
    args = module.Args(env_id="CartPole-v1")
    agent = module.Agent(4, gym.spaces.Discrete(2), args)
    saved = {"algo": name, "args": vars(args), "agent": agent.state_dict()}
    torch.save(saved, tmp_path / "checkpoint.pt")
    lengths = []
    for stochastic in (False, True):
        play(tmp_path, episodes=6, stochastic=stochastic)
        lengths.append(re.findall(r"length (\d+)", capsys.readouterr().out))
    assert lengths[0] != lengths[1]


def test_stochastic_differs_and_repeats(run, capsys):
    returns = []
    for _ in range(2):
        play(run, stochastic=True)
        returns.append(printed(capsys))
    assert returns[0] == returns[1]
    assert returns[0] != pytest.approx(own_returns(run, episodes=2), abs=0.02)


def test_video_holds_every_frame(run, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    imageio = pytest.importorskip("imageio.v3")
    play(run, video=tmp_path / "out.mp4", render=True)
    assert printed(capsys) == pytest.approx(own_returns(run, episodes=2), abs=0.02)
    assert [path.name for path in tmp_path.iterdir()] == [
        "out.mp4"
    ]  # nothing is left of what was written aside
    frames = imageio.imread(tmp_path / "out.mp4")
    assert len(frames) == 2 * (200 + 1)  # the first observation, and one frame a step
    assert (
        imageio.immeta(tmp_path / "out.mp4")["fps"]
        == gym.make("Pendulum-v1").metadata["render_fps"]
    )
    assert frames[0].mean() > 10 and frames[0].std() > 1  # not black, not blank
    assert np.abs(frames[0].astype(float) - frames[100]).max() > 50  # it moves


def test_stopped_with_a_video_half_written(run, tmp_path):
    """SIGTERM leaves no half video. Would break: the folder aside outliving the process."""
    pytest.importorskip("imageio.v3")
    words = [run, "--episodes", "50", "--video", tmp_path / "out.mp4"]
    command = [sys.executable, ROOT / "scripts/enjoy.py", *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob(".*/*")):
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("env_id", ["Pendulum", "stagger:LockstepPendulum-v0"])
def test_video_by_other_names(env_id, run, tmp_path, capsys, monkeypatch):
    """Would break: a name without a version, a module's name, a registry in which others find what enjoy.py made."""
    imageio = pytest.importorskip("imageio.v3")
    monkeypatch.delenv("DISPLAY", raising=False)
    before = {name: str(spec) for name, spec in gym.registry.items()}
    named = changed(run, tmp_path / "run", args={"env_id": env_id})
    play(named, video=tmp_path / "out.mp4", episodes=1)
    assert printed(capsys) == pytest.approx(own_returns(run, episodes=1), abs=0.02)
    assert len(imageio.imread(tmp_path / "out.mp4")) == 201
    assert before.items() <= {name: str(spec) for name, spec in gym.registry.items()}.items()


def changed(run: Path, folder: Path, **changes) -> Path:
    """A copy of the run whose checkpoint has other entries; `args` and `agent` are merged into the old ones."""
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    for key, value in changes.items():
        checkpoint[key] = checkpoint[key] | value if isinstance(value, dict) else value
    folder.mkdir()
    torch.save(checkpoint, folder / "checkpoint.pt")
    return folder


def folder(place: Path) -> Path:
    (place / "out.mp4").mkdir()
    return place / "out.mp4"


def half(run: Path, folder: Path) -> Path:
    """A copy of the run whose checkpoint was cut in half."""
    folder.mkdir()
    content = (run / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.pt").write_bytes(content[: len(content) // 2])
    return folder


def listed(folder: Path) -> Path:
    """A folder whose checkpoint is a list."""
    folder.mkdir()
    torch.save([1, 2], folder / "checkpoint.pt")
    return folder


BAD = {
    "no folder": (lambda run, tmp: dict(run=tmp / "nowhere"), "does not exist"),
    "no checkpoint": (lambda run, tmp: dict(run=tmp), "checkpoint.pt does not exist"),
    "foreign file": (lambda run, tmp: dict(run=ALGO), "or not a checkpoint of an algorithm"),
    "cut in half": (lambda run, tmp: dict(run=half(run, tmp / "run")), "is damaged or not a"),
    "a list": (lambda run, tmp: dict(run=listed(tmp / "run")), "is damaged or not a checkpoint"),
    "foreign algorithm": (
        lambda run, tmp: dict(run=changed(run, tmp / "run", algo="sarsa")),
        "--algo-file",
    ),
    "other flags": (
        lambda run, tmp: dict(run=changed(run, tmp / "run", args={"depth": 3})),
        "unexpected keyword",
    ),
    "other weights": (
        lambda run, tmp: dict(run=changed(run, tmp / "run", agent={"extra": torch.ones(1)})),
        "weights",
    ),
    "missing algorithm": (
        lambda run, tmp: dict(algo_file=tmp / "mine.py"),
        "mine.py does not exist",
    ),
    "wrong algorithm": (
        lambda run, tmp: dict(algo_file=ROOT / "scripts" / "enjoy.py"),
        "--algo-file",
    ),
    "unknown environment": (
        lambda run, tmp: dict(run=changed(run, tmp / "run", args={"env_id": "Nothing-v0"})),
        "Nothing-v0 cannot be",
    ),
    "EnvPool only": (
        lambda run, tmp: dict(
            run=changed(run, tmp / "run", args={"env_id": "WalkerWalk-v1"}), video=tmp / "out.mp4"
        ),
        "EnvPool only",
    ),
    "no display": (lambda run, tmp: dict(render=True), "--video"),
    "no episodes": (lambda run, tmp: dict(episodes=0), "--episodes"),
    "negative seed": (lambda run, tmp: dict(seed=-1), "--seed"),
    "no mp4": (lambda run, tmp: dict(video=tmp / "out.gif"), "--video"),
    "no folder for the video": (lambda run, tmp: dict(video=tmp / "no" / "out.mp4"), "--video"),
    "video below a file": (
        lambda run, tmp: dict(video=ALGO / "out.mp4"),
        "does not exist; create it first",
    ),
    "folder in the place of the video": (lambda run, tmp: dict(video=folder(tmp)), "is a folder"),
    "video that cannot be written": (
        lambda run, tmp: dict(video=Path("/proc/out.mp4")),
        "--video /proc/out.mp4: /proc cannot be written",
    ),
    "folder for the algorithm": (lambda run, tmp: dict(algo_file=tmp), "is a folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name, run, tmp_path, capfd, monkeypatch):
    if name == "EnvPool only":
        pytest.importorskip("envpool")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    make_options, message = BAD[name]
    options = make_options(run, tmp_path)
    monkeypatch.setattr(sys, "argv", ["enjoy.py"])
    before, _ = sorted(tmp_path.rglob("*")), capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        play(**{"run": run} | options)
    out, err = capfd.readouterr()
    assert stopped.value.code == 2 and not out
    assert err.startswith("enjoy.py: ") and err.count("\n") == 1 and message in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Gymnasium's half-made viewer
def test_mujoco_without_gl_names_the_variable(run, tmp_path, monkeypatch, capsys):
    pytest.importorskip("mujoco")
    monkeypatch.setenv("MUJOCO_GL", "no_such_backend")
    with pytest.raises(SystemExit) as stopped:
        play(
            changed(run, tmp_path / "run", args={"env_id": "Hopper-v5"}), video=tmp_path / "out.mp4"
        )
    assert stopped.value.code == 2 and "MUJOCO_GL=egl" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    del stopped
    gc.collect()


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v4", "Swimmer-v5", "Walker2d-v5"])
def test_camera_follows(name):
    """Would break: a cheetah that has left the picture after a second. The camera's name is one that the task has."""
    with enjoy.rendered(gym.spec(name), "rgb_array"):
        given = gym.spec(name).kwargs
    assert given["render_mode"] == "rgb_array"
    assert ("camera_name" in given) == (name != "Walker2d-v5")
    assert "camera_name" not in gym.spec(name).kwargs
    if "camera_name" in given:
        with gym.make(name) as env:
            assert env.unwrapped.model.camera(given["camera_name"]).id >= 0


@pytest.mark.parametrize("name", ["ppo", "dqn", "reinforce"])
def test_discrete_actions(name, tmp_path, capsys):
    """Would break: an Agent of other parameters that cannot be rebuilt; best.pt or an earlier checkpoint that cannot be
    played; draws that are the mode's actions."""
    module = load(ROOT / "algos" / f"{name}.py")
    small = dict(
        env_id="CartPole-v1",
        total_timesteps=2000,
        eval_episodes=3,
        runs_dir=str(tmp_path),
        learning_rate=3e-3,
        eval_frequency=600,
        keep_checkpoints=1,
    )
    own = {"ppo": {"num_envs": 8}, "dqn": {"learning_starts": 200}}
    module.train(module.Args(**small, **own.get(name, {})))
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
    if name == "dqn":
        with pytest.raises(SystemExit):
            play(run, stochastic=True)
        assert "--stochastic" in capsys.readouterr().err
    else:
        play(run, episodes=8, stochastic=True)
        drawn = re.findall(r"return ([\d.]+)", capsys.readouterr().out)
        play(run, episodes=8)
        assert drawn != re.findall(r"return ([\d.]+)", capsys.readouterr().out)


@pytest.mark.parametrize("name", OFF_POLICY)
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


@pytest.mark.parametrize("env_id", ["CartPole-v1", "envs:CartPolePixels-v0"])
@pytest.mark.parametrize("name", ["ppo_pixels", "dqn_pixels"])
def test_pixels(name, env_id, tmp_path, capsys, monkeypatch):
    """Pictures of the environment itself and of its rendering, played, filmed, and refused a window where the agent
    needs the rendering. Would break: a network of another size, a window in place of the agent's pictures."""
    imageio, module = pytest.importorskip("imageio.v3"), load(ROOT / "algos" / f"{name}.py")
    args = module.Args(env_id=env_id, precision="float32")
    agent = module.Agent((4, 84, 84), gym.spaces.Discrete(2), args, "float32")
    saved, expected = {"algo": name, "args": vars(args), "agent": agent.state_dict()}, []
    torch.save(saved, tmp_path / "checkpoint.pt")
    for i in range(2):
        expected += [*module.evaluate(agent, *module.make_envs(args, 1, SEED + i))]
    for video in (None, tmp_path / "out.mp4"):
        play(tmp_path, video=video)
        played = re.findall(r"return ([\d.]+), length (\d+)", capsys.readouterr().out)
        assert [float(value) for value, _ in played] == expected
    assert len(imageio.imread(tmp_path / "out.mp4")) == sum(int(length) + 1 for _, length in played)
    if name == "ppo_pixels":
        play(tmp_path, stochastic=True, episodes=8)
        assert len({*re.findall(r"length (\d+)", capsys.readouterr().out)}) > 2
    if env_id == "CartPole-v1":
        monkeypatch.setenv("DISPLAY", ":0")
        with pytest.raises(SystemExit):
            play(tmp_path, render=True)
        assert "--video" in capsys.readouterr().err


ATARI = {name: load(ROOT / "algos" / f"{name}.py") for name in ("ppo_atari", "dqn_atari")}


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


def test_atari_bad_input_is_one_line(game, capfd, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    for options, word in ((dict(render=True), "--video"), (dict(stochastic=True), "--stochastic")):
        with pytest.raises(SystemExit) as stopped:
            play(game[0], **options)
        out, err = capfd.readouterr()
        assert stopped.value.code == 2 and not out
        assert err.count("\n") == 1 and word in err
