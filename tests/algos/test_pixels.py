"""ppo_pixels.py and dqn_pixels.py: what they see, and their network. Their runs are in test_runs.py."""

import functools

import cv2
import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    PIXELS,
    command_line,
    load,
    script,
    spy,
    tiny,
)
from test_atari_loss import by_hand
from test_bad_input import refused
from test_environments import open_envs, opened
from test_videos import Filmed
from toy_envs import Still


@pytest.fixture(params=PIXELS)
def pixels(request):
    return load(request.param)


def grey(picture: np.ndarray) -> np.ndarray:
    """(84, 84) of a picture in colour (height, width, 3)."""
    luminance = (picture @ np.array([0.2125, 0.7154, 0.0721])).astype(np.uint8)
    return cv2.resize(luminance, (84, 84), interpolation=cv2.INTER_AREA)


def play(pixels, env_id: str, steps: int) -> list[np.ndarray]:
    envs, obs = pixels.make_envs(pixels.Args(env_id=env_id), 1, 7)
    seen = [obs[0].copy()]
    for _ in range(steps):
        seen.append(envs.step(np.array([1]))[0][0].copy())
    envs.close()
    return seen


def test_stacks_are_taken_as_they_are(pixels):
    """Would break: pictures that are drawn, scaled or stacked a second time; another order of the seeds."""
    env = gym.make("envs:CartPolePixels-v0")
    first, seen = env.reset(seed=7)[0], play(pixels, "envs:CartPolePixels-v0", 5)
    assert seen[0].shape == (4, 84, 84) and seen[0].dtype == np.uint8
    for theirs, ours in zip([first, *(env.step(1)[0] for _ in range(5))], seen, strict=True):
        assert np.array_equal(ours, theirs)


def test_rendered_pictures(pixels):
    """CartPole-v1 as it looks, through the end of its episode. Would break: frames in the wrong order, a stack that
    reaches into the episode before, an end that is not shown."""
    env, stack = gym.make("CartPole-v1", render_mode="rgb_array"), None
    for ours in play(pixels, "CartPole-v1", 14):
        if stack is None:
            env.reset(seed=7)
            done, stack = False, 4 * [grey(env.render())]
        elif done:  # a reset row
            env.reset()
            done, stack = False, 4 * [grey(env.render())]
        else:
            _, _, terminated, truncated, _ = env.step(1)
            done, stack = terminated or truncated, [*stack[1:], grey(env.render())]
        apart = np.abs(ours.astype(int) - np.stack(stack))  # ours are shrunk first: rounding
        assert apart.max() <= 1 and (apart > 0).mean() < 0.01
    assert (
        env.unwrapped.steps_beyond_terminated is None and len(np.unique(ours)) > 2
    )  # in the second episode


def test_pictures_in_colour(pixels):
    """Would break: channels taken for frames."""
    gym.register(
        "Colour-v0", entry_point=Still, kwargs={"shape": (40, 60, 3)}, disable_env_checker=True
    )
    try:
        assert [obs.shape for obs in play(pixels, "Colour-v0", 2)] == 3 * [(4, 84, 84)]
        assert {*np.unique(play(pixels, "Colour-v0", 2)[-1])} <= {8, 9}
    finally:
        del gym.registry["Colour-v0"]


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 36, 36), (2, 48, 101), (3, 98, 63)], ids=str)
def test_network_for_any_size(pixels, shape):
    """Against PyTorch's own convolutions. Would break: a hidden layer of another size, height and width swapped."""
    agent = pixels.Agent(shape, gym.spaces.Discrete(5), pixels.Args(), "float32")
    obs = torch.randint(256, (6, *shape), dtype=torch.uint8)
    ours = agent(obs) if hasattr(agent, "head") else agent.actor(agent.features(obs))
    plain = by_hand(agent, obs)
    assert ours.shape == (6, 5) and plain.abs().max() > 0
    torch.testing.assert_close(ours, plain, rtol=0, atol=2e-5 * plain.abs().max().item())


def test_variants_of_the_study():
    """envs/cartpole_variants.py. Would break: a variant that is the original, or changes more than it says."""
    start = {
        name: gym.make(f"envs.cartpole_variants:{name}-v0").unwrapped
        for name in ("Line", "Whole", "Stack1")
    }
    first = {name: env.reset(seed=3)[0] for name, env in start.items()}
    plain = gym.make("envs:CartPolePixels-v0").reset(seed=3)[0]
    assert np.array_equal(first["Stack1"], plain[-1:]) and {*np.unique(first["Whole"])} == {
        0,
        128,
        255,
    }
    assert 40 < np.abs(first["Whole"].astype(int) - plain).max() < 128
    assert (first["Line"] != plain).any(axis=(0, 1)).sum() == 2  # columns
    paid = {"Skip1": 1, "Skip4": 4, "Skip4Line": 4, "Rendered4": 4, "Averaged4": 1}
    for name, reward in paid.items():
        env, total, done = gym.make(f"envs.cartpole_variants:{name}-v0"), [], False
        env.reset(seed=3)
        while not done:
            _, paid_now, terminated, truncated, _ = env.step(len(total) % 2)
            total.append(paid_now)
            done = terminated or truncated
        assert total[0] == reward and max(total) == reward and terminated


def test_box_actions(monkeypatch, tmp_path):
    """ppo_pixels_continuous.py. Would break: actions beyond their bounds, an update on clipped ones, a log-probability
    that is not the sum over dimensions, an evaluation with noise."""
    algo = load("ppo_pixels_continuous")
    low, high = np.array([-0.1, 0.0], np.float32), np.array([0.1, 0.3], np.float32)
    agent = algo.Agent((1, 36, 36), gym.spaces.Box(low, high), algo.Args(init_std=0.5), "float32")
    obs = torch.randint(256, (50, 1, 36, 36), dtype=torch.uint8)
    action, logprob, entropy, value = agent.get_action_and_value(obs)
    features = agent.features(obs)
    policy = torch.distributions.Normal(agent.actor(features), torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(logprob, policy.log_prob(action).sum(1))
    torch.testing.assert_close(entropy, policy.entropy().sum(1))
    torch.testing.assert_close(value, agent.critic(features)[:, 0])
    assert (action.abs() > 0.3).any()
    assert np.array_equal(agent.to_env(action.detach()), action.detach().numpy().clip(low, high))
    played = []
    spy(monkeypatch, algo, "evaluate", lambda agent, envs, obs, *_: played.append((agent, obs)))
    updates = []
    spy(
        monkeypatch, algo, "update", lambda agent, optimizer, args, batch, *_: updates.append(batch)
    )
    to_env = algo.Agent.to_env
    actions = []

    def record(agent, action):
        if played:
            actions.append(action.clone())
        return to_env(agent, action)

    monkeypatch.setattr(algo.Agent, "to_env", record)
    algo.train(tiny(algo, tmp_path, init_std=2.0))  # the bounds are -1 and 1
    assert all((batch["action"].abs() > 1).any() for batch in updates)
    ((agent, obs),) = played
    with torch.inference_mode():
        assert torch.equal(actions[0], agent.actor(agent.features(torch.from_numpy(obs))))


@pytest.mark.parametrize(("bound", "said"), [(100.0, True), (2.0, False)])
def test_wide_box_actions_are_named(bound, said, monkeypatch, tmp_path, capsys):
    """Would break: exploration of a small part of the actions, and not a word."""
    algo = load("ppo_pixels_continuous")
    wider = functools.partial(gym.wrappers.RescaleAction, min_action=-bound, max_action=bound)
    monkeypatch.setattr(algo, "WRAPPERS", (wider,))
    algo.train(tiny(algo, tmp_path))
    assert said == (f"action 0 is from {-bound:g} to {bound:g}, but" in capsys.readouterr().err)


def test_discrete_actions_are_refused(tmp_path):
    """Would break: a refusal that does not name the file that takes them."""
    for name, other in (
        ("ppo_pixels_continuous", "ppo_pixels.py"),
        ("ppo_pixels", "ppo_pixels_continuous.py"),
    ):
        algo = load(name)
        env_id = "CounterPixels-v0" if "continuous" in name else "CounterBoxPixels-v0"
        with pytest.raises(SystemExit, match=other):
            algo.train(tiny(algo, tmp_path, env_id=env_id))


@pytest.mark.parametrize("name", PIXELS)
def test_atari_id_in_a_file_for_images(name, tmp_path):
    """In a process of its own, which does not know ale-py. Would break: "have you installed ALE?" where it is."""
    process = command_line("--env-id", "ALE/Pong-v5", script=script(name), cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and errors.count("\n") == 1, errors
    assert "ppo_atari.py" in errors and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PIXELS)
def test_rendered_fractions_into_a_network_for_images(name, tmp_path, registered):
    """Would break: a training whose every pixel is 0."""

    def make(render_mode=None):
        fractions = np.full((40, 60, 3), 0.8)
        return toy_envs.WithChoices(Filmed(fractions, fractions, {}, render_mode))

    env_id = registered("Fractions-v0", make)
    refused(load(name), tmp_path, "--env-id", "float64", "uint8", env_id=env_id)


LAYOUTS = {(40, 60): True, (40, 60, 1): True, (1, 40, 60): False, (40, 60, 3): True}


@pytest.mark.parametrize("name", PIXELS)
def test_layouts_of_images(name, tmp_path, registered):
    """Would break: training on what is rendered although the environment shows images; the environment
    here renders nothing."""
    algo = load(name)
    for shape, becomes_a_stack in LAYOUTS.items():
        env_id = registered(
            f"Layout{len(gym.registry)}-v0", lambda shape=shape: toy_envs.Still(shape)
        )
        envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
        envs.close()
        assert obs.shape[1:] == ((4, 84, 84) if becomes_a_stack else shape)
        assert (obs == 9).all() or shape[-1] == 3  # the sum of three channels is rounded


class Other(toy_envs.Still):
    def __init__(self, shape: tuple, dtype, high: int):
        self.observation_space = gym.spaces.Box(0, high, shape, dtype)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}


class Bytes(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (3, 84, 84), np.uint8)

    def observation(self, obs):
        return (255 * obs).astype(np.uint8)


@pytest.mark.parametrize("name", PIXELS)
def test_other_layouts_of_images(name, tmp_path, registered, capsys):
    """Would break: a run on what is rendered, or no word of the layouts that work."""
    algo = load(name)
    others = [
        ((3, 84, 84), np.float32, 1),
        ((4, 84, 84, 3), np.uint8, 255),
        ((40, 60), np.float64, 1),
    ]
    for other in others:
        env_id = registered(f"Other{len(gym.registry)}-v0", lambda other=other: Other(*other))
        words = ["uint8", "(frames, height, width)", "WRAPPERS", "TransformObservation"]
        refused(algo, tmp_path, "--env-id", *words, env_id=env_id)
    for shape in ((38, 38, 1), (84, 84), (4, 84, 84)):  # 8-bit images of 0 and 1
        env_id = registered(
            f"Other{len(gym.registry)}-v0", lambda shape=shape: Other(shape, np.uint8, 1)
        )
        refused(algo, tmp_path, "--env-id", "bounds 0 and 255", "WRAPPERS", env_id=env_id)
    capsys.readouterr()
    algo.WRAPPERS = (Bytes,)
    env_id = registered("OtherBytes-v0", lambda: Other(*others[0]))
    envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert obs.shape[1:] == (3, 84, 84)
    assert "3 images are taken for 3 frames; if they are colours" in capsys.readouterr().err


class Transparent(gym.Env):
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(0, 1, (1,))
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return self.reset()[0], 1.0, True, False, {}

    def render(self):
        return np.full((40, 60, 4), 9, np.uint8)


@pytest.mark.parametrize("name", PIXELS)
def test_rendered_images_with_transparency(name, tmp_path, registered):
    """Would break: a traceback about the number of dimensions."""
    env_id = registered("Transparent-v0", Transparent)
    refused(load(name), tmp_path, "(40, 60, 4), not uint8 of shape", env_id=env_id)


class InAPart(toy_envs.Still):
    """An image in a dictionary."""

    def __init__(self):
        super().__init__((40, 60))
        self.observation_space = gym.spaces.Dict(camera=self.observation_space)

    def reset(self, *, seed=None, options=None):
        return {"camera": np.full((40, 60), 9, np.uint8)}, {}


@pytest.mark.parametrize("name", PIXELS)
def test_an_image_in_a_dictionary(name, tmp_path, registered):
    """Would break: training on what is rendered, in silence."""
    algo = load(name)
    env_id = registered("InAPart-v0", InAPart)
    words = ["camera", "dictionary", "TransformObservation", "WRAPPERS"]
    refused(algo, tmp_path, "--env-id", *words, env_id=env_id)
    camera = gym.spaces.Box(0, 255, (40, 60), np.uint8)
    taken_out = functools.partial(
        gym.wrappers.TransformObservation, func=lambda obs: obs["camera"], observation_space=camera
    )
    algo.WRAPPERS = (taken_out,)
    envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert (obs == 9).all()


@pytest.mark.parametrize("name", PIXELS)
def test_images_too_small_for_the_network(name, tmp_path, registered):
    """Would break: a grid of 10 x 10 cells with 4 channels, and no hint at their order, nor at a file
    for it."""
    env_id = registered("Small-v0", lambda: toy_envs.Still((10, 10, 4)))
    other = name.removesuffix("_pixels")
    words = ["10 images of 10 x 4", "order", "TransformObservation", f"{other}.py"]
    refused(load(name), tmp_path, *words, "FlattenObservation", env_id=env_id)
    algo = load(other)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    opened(algo, tmp_path, env_id=env_id)
