"""scripts/enjoy.py against a plain loop over the bare environment, its video read back, its window, and its error
messages.

The windows of these tests are SDL's dummy ones, which need no display; one test uses Xvfb where it is installed.
"""

import gc
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import enjoy
import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs  # noqa: F401  (registers ShortBreakout-v4)
from gymnasium.envs.classic_control.pendulum import PendulumEnv
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
    which = {} if "seeds" in options else {"episodes": 2, "seed": SEED}
    enjoy.main(enjoy.Options(run=run, **which | {"render": False} | options))


@pytest.fixture
def screen(monkeypatch):
    """A window that nobody sees and that does not wait; what it shows, and how often it was opened."""
    pygame = pytest.importorskip("pygame")
    pygame.quit()  # what another test has drawn in memory
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    set_mode, flip = pygame.display.set_mode, pygame.display.flip
    shown = SimpleNamespace(images=[], opened=0, after_image=lambda: None)

    def open_window(*args):
        shown.opened += 1
        return set_mode(*args)

    def show():
        flip()
        image = pygame.surfarray.array3d(pygame.display.get_surface())
        shown.images.append(image.swapaxes(0, 1))
        shown.after_image()

    monkeypatch.setattr(pygame.display, "set_mode", open_window)
    monkeypatch.setattr(pygame.display, "flip", show)
    monkeypatch.setattr(pygame.time, "Clock", lambda: SimpleNamespace(tick=lambda fps: None))
    yield shown
    pygame.quit()


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
OTHER_FILES |= dict.fromkeys(["td3_continuous", "crossq_continuous"], "Pendulum-v1")


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
    first, second, *_, squashed = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/runs.md").read_text(), re.DOTALL
    )
    first = first.replace("ppo_continuous", name).replace("runs/RUN", str(tmp_path))
    if extra:
        first = first.replace('Args(**saved["args"]))', 'Args(**saved["args"]), "float32")')
    (lines,) = [part for part in second.split("    # ") if f"{name}.py" in part.split("\n")[0]]
    found = {}
    exec("\n".join([*first.splitlines()[:-2], *lines.splitlines()[1:]]), found)
    assert found["env"].action_space.contains(found["action"])
    if extra:  # their policies act in [-1, 1], which an export must scale, too
        exec("def forward(self, obs):\n" + squashed, found)
        action = found["forward"](SimpleNamespace(agent=found["agent"]), found["x"].clone())
        assert np.allclose(action.detach().numpy()[0], found["action"])


def test_exported_policy(run, tmp_path, monkeypatch):
    """The third and fourth block of docs/runs.md. Would break: an export that loses the normalisation or the bounds, or
    that takes one number of observations only."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/runs.md").read_text(), re.DOTALL)
    load_agent, _, export, use, *_ = blocks
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(load_agent.replace("runs/RUN", str(run)) + export, found)
    exec(use, found)
    agent = found["agent"]
    obs = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.5, 8.0], [0.0, 1.0, -8.0]])
    right = agent.actor_mean(agent.normalize(obs)).clamp(-2, 2)
    assert found["action"].shape == (1, 1)
    assert torch.allclose(found["policy"](obs), right, atol=1e-6)


def printed(capsys) -> list[float]:
    return [
        float(value)
        for value in re.findall(r"return (-?[\d.]+), length 200", capsys.readouterr().out)
    ]


@torch.inference_mode()
def own_returns(run: Path, episodes: int = 0, seeds=()) -> list[float]:
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    env, returns = gym.make("Pendulum-v1"), []
    agent = algo.Agent(3, env.action_space, algo.Args(**checkpoint["args"]))
    agent.load_state_dict(checkpoint["agent"])
    for seed in seeds or range(SEED, SEED + episodes):
        (obs, _), total, done = env.reset(seed=seed), 0.0, False
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


def test_seeds(run, capsys):
    """Would break: other episodes than those named; an evaluation whose episodes cannot be watched."""
    play(run, seeds=(9, 5, 12))
    out = capsys.readouterr().out
    found = re.findall(r"\(seed (\d+)\): return (-?[\d.]+)", out)
    assert [int(seed) for seed, _ in found] == [9, 5, 12]
    expected = own_returns(run, seeds=(9, 5, 12))
    assert [float(value) for _, value in found] == pytest.approx(expected, abs=0.02)
    play(run, seeds=(9,), episodes=1)  # no contradiction
    summary = json.loads((run / "summary.json").read_text())
    text = (ROOT / "docs/runs.md").read_text()
    (formula,) = re.findall(r"`(\(10007 \* seed\)[^`]*)`", text)
    seeds = [eval(formula, {"seed": summary["seed"], "i": i}) for i in range(2)]
    capsys.readouterr()
    play(run, seeds=(*seeds,))
    assert printed(capsys) == pytest.approx(summary["eval_returns"], abs=0.02)


def test_module_beside_the_script(tmp_path):
    """Would break: a copy that python runs and probe.py, sweep.py and enjoy.py refuse, or one that gets the module of
    this name that lies beside another copy, or in scripts/."""
    before = sys.modules["plainrl_tools.common"], [*sys.path]
    for name in ("one", "other", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "common.py").write_text(f"word = {name!r}\n")
        (tmp_path / name / "mine.py").write_text("from common import word\n")
        assert load(tmp_path / name / "mine.py").word == name
    assert before == (sys.modules["plainrl_tools.common"], sys.path)


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


def test_command_for_a_copy(run, tmp_path):
    """The message for a script that is not in algos/ has the command to paste. Would break: a command that loses flags
    or a folder's space; a copy that runs although nobody has named it."""
    folder = changed(run, tmp_path / "my run", algo="mine")
    trace = tmp_path / "trace"
    text = ALGO.read_text() + f"\nPath({str(trace)!r}).touch()\n"
    (folder / "mine.py").write_text(text)
    words = [str(folder), "--no-render", "--seeds", str(SEED)]
    arguments = [sys.executable, "scripts/enjoy.py", *words]
    first = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert first.returncode == 2 and first.stderr.count("\n") == 1 and not trace.exists()
    command = shlex.split(first.stderr.partition("use it with: ")[2])
    assert command == ["python", *arguments[1:], "--algo-file", str(folder / "mine.py")]
    second = subprocess.run(
        [sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True
    )
    assert second.returncode == 0 and trace.exists()
    (value,) = re.findall(r"return (-?[\d.]+), length 200", second.stdout)
    assert float(value) == pytest.approx(*own_returns(run, episodes=1), abs=0.02)


def test_copy_with_wrappers(run, tmp_path, capsys, screen):
    """Would break: an environment without the wrappers and keywords of the copy, in a window or in a video."""
    wrappers = "(partial(gym.wrappers.TransformReward, func=lambda reward: 10 * reward),)"
    text = ALGO.read_text().replace("WRAPPERS = ()", f"WRAPPERS = {wrappers}", 1)
    keywords = 'ENV_KWARGS = {"g": 0.0, "render_mode": "rgb_array"}'  # without gravity
    copy = tmp_path / ALGO.name
    copy.write_text(text.replace("ENV_KWARGS = {}", keywords, 1))
    returns = []
    for output in (dict(), dict(render=True), dict(video=tmp_path / "out.mp4")):
        play(run, algo_file=copy, episodes=1, **output)
        returns.append(printed(capsys))
    assert returns[0] == returns[1] == returns[2]
    assert len(screen.images) == 200 + 1
    module = load(copy)
    args = module.Args(**torch.load(run / "checkpoint.pt", weights_only=True)["args"])
    agent = module.Agent(3, gym.spaces.Box(-2, 2, (1,)), args)
    agent.load_state_dict(torch.load(run / "checkpoint.pt", weights_only=True)["agent"])
    envs, obs = module.make_envs(args, "gymnasium", 1, SEED)
    assert returns[0][0] == pytest.approx(*module.evaluate(agent, envs, obs), abs=0.02)


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


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_full_disk(run, tmp_path):
    """A limit on the size of files stands in for the disk. Would break: a video that ends without its index and is
    reported as written; a traceback, if the encoder ends in the middle."""
    pytest.importorskip("imageio.v3")
    program = "import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000,) * 2); "
    program += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = [run, "--episodes", "3", "--video", tmp_path / "out.mp4"]
    command = [sys.executable, "-c", program, ROOT / "scripts/enjoy.py", *words]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert last.startswith("enjoy.py: ") and "disk full" in last and "--video" in last
    assert not list(tmp_path.iterdir())


def test_animation(run, tmp_path):
    """docs/make_animation.py plays with the functions of enjoy.py. Would break: a function of another name."""
    image = pytest.importorskip("PIL.Image")
    words = [run, "--output", tmp_path / "out.gif", "--seconds", "0.5", "--skip", "0.2"]
    command = [sys.executable, ROOT / "docs/make_animation.py", *words]
    subprocess.run(command, check=True, capture_output=True)
    assert image.open(tmp_path / "out.gif").n_frames > 5


def test_window(run, tmp_path, capsys, screen):
    """Would break: a window that an environment's close() takes along; other episodes than those of the video."""
    play(run, render=True, episodes=2)
    assert printed(capsys) == pytest.approx(own_returns(run, episodes=2), abs=0.02)
    assert screen.opened == 1 and len(screen.images) == 2 * (200 + 1)
    with gym.make("Pendulum-v1", render_mode="rgb_array") as env:
        env.reset(seed=SEED)
        assert (screen.images[0] == env.render()).all()
    assert (screen.images[0] != screen.images[100]).any()  # it moves


def test_closed_window(run, capsys, screen, monkeypatch):
    """Would break: a user who closes the window and must find the terminal to end the program; environments that stay
    open."""
    pygame = pytest.importorskip("pygame")
    closed = []
    close = gym.vector.SyncVectorEnv.close_extras
    monkeypatch.setattr(
        gym.vector.SyncVectorEnv, "close_extras", lambda envs: closed.append(close(envs))
    )

    def click():
        if len(screen.images) == 300:  # in the second episode
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    screen.after_image = click
    play(run, render=True, episodes=5)
    out = capsys.readouterr().out
    (value,) = own_returns(run, episodes=1)
    assert f"return {value:.2f}, length 200\nthe window was closed in episode 2\n" in out
    assert out.endswith(f"mean {value:.2f} +- 0.00 over 1 episodes\n")
    assert len(screen.images) == 300 and not pygame.display.get_init()
    assert len(closed) == 4  # the first two were made to look at the task
    screen.after_image = lambda: pygame.event.post(pygame.event.Event(pygame.QUIT))
    play(run, render=True)
    assert capsys.readouterr().out == "the window was closed in episode 1\n"


def test_display_that_cannot_be_reached(run, screen, monkeypatch, capfd):
    """Would break: SDL, which draws into memory where DISPLAY names no server, so that the episodes play unseen."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    with pytest.raises(SystemExit):
        play(run, render=True)
    out, err = capfd.readouterr()
    assert not out and err.count("\n") == 1 and not screen.opened
    assert "no display" in err and "--video FILE" in err and "--no-render" in err


@pytest.mark.skipif(not shutil.which("Xvfb"), reason="needs a virtual display (Debian: xvfb)")
def test_mujoco_in_a_window(run, tmp_path):
    """Would break: a window that takes the OpenGL context from MuJoCo, whose frames are black then."""
    pytest.importorskip("mujoco")
    display, number = os.pipe()
    command = ["Xvfb", "-displayfd", str(number), "-screen", "0", "800x600x24"]
    server = subprocess.Popen(command, pass_fds=[number], stderr=subprocess.DEVNULL)
    try:
        name = os.read(display, 10).decode().strip()
        program = [
            "import enjoy, pathlib, sys",
            "show = enjoy.Window.append_data",
            "def print_mean(window, frame):",
            "    show(window, frame)",
            "    print('brightness', frame.mean())",
            "enjoy.Window.append_data = print_mean",
            "args = enjoy.Options(run=pathlib.Path(sys.argv[1]), seeds=(1, 2))",
            "module, *rest = loaded = enjoy.load_run(args.run)",
            "module.Agent.load_state_dict = lambda agent, weights: None",  # of another task
            "loaded[1].eval_max_steps = 5",
            "enjoy.load_run = lambda *args: loaded",
            "enjoy.main(args)",
        ]
        folder = changed(run, tmp_path / "run", args={"env_id": "Hopper-v5"})
        variables = {"DISPLAY": f":{name}", "MUJOCO_GL": "glfw", "PYTHONPATH": ROOT / "scripts"}
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(program), folder],
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )
    finally:
        server.terminate()
        server.wait()
        os.close(display)
        os.close(number)
    brightness = [float(value) for value in re.findall(r"brightness ([\d.]+)", done.stdout)]
    assert len(brightness) == 2 * (5 + 1) and min(brightness) > 10, done.stderr


class Painted(PendulumEnv):
    """Pendulum without its own drawing."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, shape=(), render_mode=None):
        super().__init__(render_mode=None)
        self.render_mode = render_mode
        self.shape = shape

    def render(self):
        return np.full(self.shape, 50, np.uint8) if self.shape else None


@pytest.fixture
def painted(run, tmp_path):
    """Register the environment for the length of a test and return a run of it."""
    ids = []

    def register(entry_point, **kwargs) -> Path:
        ids.append("Painted-v0")
        gym.register(ids[-1], entry_point=entry_point, max_episode_steps=200, kwargs=kwargs)
        return changed(run, tmp_path / "run", args={"env_id": ids[-1]})

    yield register
    for env_id in ids:
        del gym.registry[env_id]


@pytest.mark.parametrize("shape", [(40, 60), (800, 600, 4)])
def test_frames_of_other_shapes(shape, painted, capsys, screen):
    """Small frames are enlarged by a whole factor. Would break: a grey image or one with transparency."""
    play(painted(Painted, shape=shape), render=True, episodes=1)
    assert len(printed(capsys)) == 1
    factor = 11 if shape[0] == 40 else 1
    assert screen.images[0].shape == (factor * shape[0], factor * shape[1], 3)
    assert (screen.images[-1] == 50).all()


def test_no_image(painted, tmp_path, capfd, screen):
    """Would break: a traceback in the middle of the first episode."""
    with pytest.raises(SystemExit):
        play(painted(Painted), video=tmp_path / "out.mp4")
    out, err = capfd.readouterr()
    assert not out and err.count("\n") == 1 and not screen.opened
    assert "NoneType" in err and "--no-render" in err and not list(tmp_path.glob("*.mp4"))


def changed(run: Path, folder: Path, **changes) -> Path:
    """A copy of the run whose checkpoint has other entries; `args` and `agent` are merged into the old ones."""
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    for key, value in changes.items():
        checkpoint[key] = checkpoint[key] | value if isinstance(value, dict) else value
    folder.mkdir()
    torch.save(checkpoint, folder / "checkpoint.pt")
    return folder


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


BAD = {
    "no folder": (lambda run, tmp: dict(run=tmp / "nowhere"), "does not exist"),
    "no checkpoint": (lambda run, tmp: dict(run=tmp), "checkpoint.pt does not exist"),
    "foreign file": (lambda run, tmp: dict(run=ALGO), "or not a checkpoint of an algorithm"),
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
    "unknown environment": (
        lambda run, tmp: dict(run=changed(run, tmp / "run", args={"env_id": "Nothing-v0"})),
        "Nothing-v0 cannot be",
    ),
    "no display": (
        lambda run, tmp: dict(render=True),
        "use --video FILE to write a video, or --no-render to print",
    ),
    "seeds and a seed": (lambda run, tmp: dict(seeds=(5, 9), seed=3), "--seeds 5 9"),
    "import that fails": (
        lambda run, tmp: dict(algo_file=written(tmp / "mine.py", "import no_such_module\n")),
        "must be given there, not as a copy",
    ),
    "no episodes": (lambda run, tmp: dict(episodes=0), "--episodes"),
    "no folder for the video": (lambda run, tmp: dict(video=tmp / "no" / "out.mp4"), "--video"),
    "video that cannot be written": (
        lambda run, tmp: dict(video=Path("/proc/out.mp4")),
        "--video /proc/out.mp4: /proc cannot be written",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name, run, tmp_path, capfd, monkeypatch):
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


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Walker2d-v5"])
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


@pytest.mark.parametrize(
    ("name", "env_id"), [("ppo_pixels", "CartPole-v1"), ("dqn_pixels", "envs:CartPolePixels-v0")]
)
def test_pixels(name, env_id, tmp_path, capsys, screen):
    """Pictures of the environment itself and of its rendering, played, filmed, and shown in a window. Would break: a
    network of another size, a window in place of the agent's pictures."""
    imageio, module = pytest.importorskip("imageio.v3"), load(ROOT / "algos" / f"{name}.py")
    args = module.Args(env_id=env_id, precision="float32")
    agent = module.Agent((4, 84, 84), gym.spaces.Discrete(2), args, "float32")
    saved, expected = {"algo": name, "args": vars(args), "agent": agent.state_dict()}, []
    torch.save(saved, tmp_path / "checkpoint.pt")
    for i in range(2):
        expected += [*module.evaluate(agent, *module.make_envs(args, 1, SEED + i))]
    for output in (dict(), dict(video=tmp_path / "out.mp4"), dict(render=True)):
        play(tmp_path, **output)
        played = re.findall(r"return ([\d.]+), length (\d+)", capsys.readouterr().out)
        assert [float(value) for value, _ in played] == expected
    assert len(imageio.imread(tmp_path / "out.mp4")) == sum(int(length) + 1 for _, length in played)
    assert screen.opened == 1
    assert len(screen.images) == sum(int(length) + 1 for _, length in played)
    size = (400, 600, 3) if env_id == "CartPole-v1" else (420, 420, 3)
    assert {image.shape for image in screen.images} == {size}
    assert (screen.images[0] != screen.images[-1]).any()
    if name == "ppo_pixels":
        play(tmp_path, stochastic=True, episodes=8)
        assert len({*re.findall(r"length (\d+)", capsys.readouterr().out)}) > 2


def test_stochastic_box_actions_from_images():
    """Would break: a Gaussian's mean taken for logits, so that an action is all zeros and a one."""
    module = load(ROOT / "algos/ppo_pixels_continuous.py")
    args = module.Args(init_std=0.3)
    agent = module.Agent((4, 84, 84), gym.spaces.Box(-2, 2, (2,)), args, "float32")
    features = torch.randn(1, 512).expand(5000, 512)
    mean = agent.actor(features)[0]
    torch.manual_seed(1)
    with torch.no_grad():
        actions = enjoy.sample_actions(module, agent).actor(features)
    torch.testing.assert_close(actions.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(actions.std(0), torch.full((2,), 0.3), atol=0.02, rtol=0)
