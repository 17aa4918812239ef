"""The environments in envs/: Gymnasium's and stable-baselines3's checkers, rewards and ends, pictures, physics."""

import os
import subprocess
import sys
import warnings

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import stable_baselines3.common.env_checker as sb3_checker
from conftest import ROOT
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.utils.env_checker import check_env

PIXELS, ENDLESS, PHYSICS = (
    "envs:CartPolePixels-v0",
    "envs:CartPoleEndless-v0",
    "envs:PhysicsCartPole-v0",
)
PLATE, PLATE_BOX = "envs:BalancingPlate-v0", "envs:BalancingPlateContinuous-v0"
STACKED = "envs:BalancingPlateStacked-v0"
REACH = "envs:ArmReach-v0"
MUJOCO = [PHYSICS, PLATE, PLATE_BOX, STACKED]
EVERY = pytest.mark.parametrize("env_id", [PIXELS, ENDLESS, *MUJOCO, REACH])
PLATES = pytest.mark.parametrize("env_id", [PLATE, PLATE_BOX])
INERTIA = 0.3 * (0.3**2 + 0.02**2) / 12  # kg m2, of the plate about a hinge


@pytest.fixture(autouse=True)
def repository_on_the_path(monkeypatch):
    """As for someone who works in the repository's root; pygame draws without a display."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def check_everything(env_id: str, rendering: bool) -> None:
    """Both checkers on the bare environment and on gym.make's, any warning being an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id).unwrapped, skip_render_check=not rendering)
        sb3_checker.check_env(gym.make(env_id).unwrapped)
        sb3_checker.check_env(gym.make(env_id))
        warnings.filterwarnings("ignore", ".*is different from the unwrapped version")
        check_env(gym.make(env_id), skip_render_check=True)


@EVERY
def test_both_checkers_are_silent(env_id):
    """Would break: spaces without bounds, observations that share memory, a window that cannot be opened twice."""
    check_everything(env_id, rendering=env_id in (PIXELS, ENDLESS))


RENDERING = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/tests", {root!r} + "/tests/tools"]
import gymnasium as gym, numpy as np
from test_custom_envs import MUJOCO, check_everything
try:
    gym.make(MUJOCO[0], render_mode="rgb_array").unwrapped.render()
except Exception as error:
    sys.exit(f"no GL: {{error.__cause__ or error}}")
for env_id in MUJOCO:
    check_everything(env_id, rendering=True)
for env_id, moved in (("envs:PhysicsCartPole-v0", [0, 0.1]), ("envs:BalancingPlate-v0", [0, 0, 0.05])):
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert first.shape == (480, 640, 3) and first.dtype == np.uint8 and first.std() > 10
    env.unwrapped.data.qpos[: len(moved)] += moved
    difference = np.abs(env.render().astype(int) - first).max(2) > 30
    assert 100 < difference.sum() < 20_000, f"{{env_id}}: {{difference.sum()}} pixels changed"
    env.close()
    env.close()
    assert env.render().std() > 10
    env.close()
"""


def test_mujoco_rendering():
    """Would break: pictures without the ball or the pole, pictures of the state before, a window that cannot be had
    from MuJoCo's pictures."""
    reasons = {}
    for backend in ("egl", "osmesa"):
        variables = os.environ | {
            "MUJOCO_GL": backend,
            "PYOPENGL_PLATFORM": backend,
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", RENDERING.format(root=str(ROOT))]
        done = subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        if done.returncode == 0:
            return
        assert "no GL: " in done.stderr, done.stderr
        reasons[backend] = done.stderr.strip().splitlines()[-1]
    pytest.skip(f"MuJoCo has no way to draw on this machine: {reasons}")


def test_import_needs_no_display_and_no_engine():
    """Would break: `import envs` that loads MuJoCo, pygame or OpenGL, or opens a window."""
    script = "import sys, envs; print([name for name in ('mujoco', 'pygame', 'OpenGL', 'cv2') if name in sys.modules])"
    variables = {
        key: value for key, value in os.environ.items() if key not in ("DISPLAY", "SDL_VIDEODRIVER")
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def trajectory(env: gym.Env, seed: int, steps: int = 40) -> list:
    """Observation, reward and ends of the first steps of random play, over several episodes."""
    env.action_space.seed(0)
    rows = [env.reset(seed=seed)[0].tobytes()]
    for step in range(steps):
        obs, *rest, _ = env.step(env.action_space.sample())
        rows.append((obs.tobytes(), *rest))
        if any(rest[1:]) or step == steps // 2:
            rows.append(env.reset()[0].tobytes())
    return rows


@EVERY
def test_seed_decides_the_episodes(env_id):
    """Would break: a generator of one's own, state that a reset leaves behind, the same start in every episode."""
    env = gym.make(env_id)
    one, other = trajectory(env, 1), trajectory(env, 2)
    assert one == trajectory(env, 1) == trajectory(gym.make(env_id), 1)
    assert one[0] != other[0] and one[-1] != other[-1]
    assert one[0] != next(row for row in one[1:] if isinstance(row, bytes))


def test_spaces():
    """Would break: spaces other than those documented."""
    actions = {PIXELS: 2, ENDLESS: 2, PHYSICS: 2, PLATE: 4}
    for env_id, n in actions.items():
        assert gym.make(env_id).action_space == gym.spaces.Discrete(n)
    assert gym.make(PLATE_BOX).action_space == gym.spaces.Box(-1, 1, (2,), np.float32)
    assert gym.make(PIXELS).observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert gym.make(REACH).action_space == gym.spaces.Box(-1, 1, (7,), np.float32)
    for env_id, size in ((ENDLESS, 4), (PHYSICS, 4), (PLATE, 8), (PLATE_BOX, 8), (REACH, 23)):
        space = gym.make(env_id).observation_space
        assert space.shape == (size,) and space.dtype == np.float32 and space.is_bounded()


@pytest.mark.parametrize(("env_id", "action"), [(PIXELS, 2), (PHYSICS, 2), (PLATE, 4), (PLATE, -1)])
def test_unknown_actions_are_refused(env_id, action):
    """Would break: an action that does not exist and is taken for another one."""
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    with pytest.raises((ValueError, AssertionError), match=rf"{action}\b"):
        env.step(action)


# ---------------------------------------------------------------------------------------------- CartPole in pictures


def balance(state) -> int:
    """The action of a linear policy on CartPole's state."""
    return int(np.dot((0.1, 0.3, 4, 1), state) > 0)


@pytest.mark.parametrize("arguments", [{"frame_skip": 0}, {"width": 0}])
def test_pixels_refuse_bad_arguments(arguments):
    """Would break: an empty observation or an endless loop in place of an error that names the argument."""
    with pytest.raises(ValueError, match=next(iter(arguments))):
        gym.make(PIXELS, **arguments)


@pytest.mark.parametrize("policy", ["random", "balance"])
def test_pixels_are_cartpole_at_frame_skip_1(policy):
    """Would break: another start, reward, end or time limit than CartPole-v1's."""
    ours, theirs, rng = (
        gym.make(PIXELS, frame_skip=1),
        gym.make("CartPole-v1"),
        np.random.default_rng(0),
    )
    for seed in range(10 if policy == "random" else 1):
        ours.reset(seed=seed)
        state, _ = theirs.reset(seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            action = int(rng.integers(2)) if policy == "random" else balance(state)
            state, *expected, _ = theirs.step(action)
            _, *outcome, _ = ours.step(action)
            assert outcome == expected
            assert np.array_equal(ours.unwrapped.physics.state.astype(np.float32), state)
            terminated, truncated = outcome[1:]
        assert truncated == (policy == "balance")


@pytest.mark.parametrize("skip", [2, 3])
def test_frame_skip_sums_rewards_and_keeps_the_limit(skip):
    """Would break: averaged rewards, a limit that grows with the skip, or one that lets a last action run past it."""
    env = gym.make(PIXELS, frame_skip=skip)
    env.reset(seed=3)
    rewards, truncated = [], False
    while not truncated and len(rewards) < 500:
        _, reward, terminated, truncated, _ = env.step(balance(env.unwrapped.physics.state))
        rewards.append(reward)
        assert not terminated
    assert sum(rewards) == 500 and rewards[:-1] == [skip] * (len(rewards) - 1)
    assert rewards[-1] == (500 % skip or skip)


@pytest.mark.filterwarnings("error")  # CartPoleEnv warns of steps after the end
@pytest.mark.parametrize("skip", [1, 3])
def test_a_fall_within_a_skip(skip):
    """Would break: physics steps after the end, or an end that is lost within a skip."""
    env, bare = gym.make(PIXELS, frame_skip=skip), CartPoleEnv()
    env.reset(seed=0)
    bare.reset(seed=0)
    expected = next(step for step in range(1, 500) if bare.step(1)[2])
    rewards, terminated = [], False
    while not terminated and len(rewards) < 500:
        _, reward, terminated, truncated, _ = env.step(1)
        rewards.append(reward)
    assert sum(rewards) == expected and rewards[-1] == (expected % skip or skip) and not truncated


def test_max_steps():
    """Would break: max_steps=None that still ends, another limit that is not obeyed, one left over from before."""
    env = gym.make(PIXELS, max_steps=None)
    env.reset(seed=0)
    assert not any(np.any(env.step(balance(env.unwrapped.physics.state))[2:4]) for _ in range(400))
    env = gym.make(PIXELS, max_steps=5)
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(balance(env.unwrapped.physics.state))[1:4] for _ in range(3)] == [
            (2.0, False, False),
            (2.0, False, False),
            (1.0, False, True),
        ]


def test_frame_stack():
    """Would break: pictures of the last episode after a reset, or a stack in another order."""
    env = gym.make(PIXELS, frame_stack=3)
    seen = []
    for seed in (0, 1):
        first, _ = env.reset(seed=seed)
        assert (first == first[0]).all()
        stacks = [env.step(1)[0] for _ in range(4)]
        pictures = [first[0], first[0], first[0], *(stack[-1] for stack in stacks)]
        assert len({picture.tobytes() for picture in pictures}) == 5
        for step, stack in enumerate(stacks, 1):
            assert np.array_equal(stack, pictures[step : step + 3])
        seen.append(pictures)
    assert not np.array_equal(*seen)
    assert gym.make(PIXELS, frame_stack=1).reset(seed=0)[0].shape == (1, 84, 84)


def picture(x: float, angle: float, **arguments) -> np.ndarray:
    """(84, 84) of a cart at x (m) with a pole that leans by angle (rad)."""
    env = gym.make(PIXELS, **arguments).unwrapped
    env.physics.state = np.array([x, 0, angle, 0])
    return env.draw()


def test_reference_line():
    """Would break: a line off the centre, in front of the pole, or drawn unasked."""
    bare, lined = picture(1.0, 0.1), picture(1.0, 0.1, reference_line=True)
    changed = bare != lined
    assert changed[:, 41:43].all() and changed.sum() == 2 * 84 and set(lined[:, 41:43].flat) == {64}
    assert np.array_equal(
        picture(0, 0)[10:78, 41:43], picture(0, 0, reference_line=True)[10:78, 41:43]
    )
    assert np.array_equal(picture(0, 0), picture(0, 0)[:, ::-1])  # x = 0 is the line's place


def read(image: np.ndarray, width: float = 4.8) -> tuple[float, float]:
    """Position (m) and angle (rad) back from a picture, through the centres of grey of the pole's rows."""
    rows = np.arange(14, 70)
    part = image[rows].astype(float)
    slope, offset = np.polyfit(70 - rows - 0.5, part @ (np.arange(84) + 0.5) / part.sum(1), 1)
    return (offset - 42) * width / 84, float(np.arctan(slope * 60 * width / 84))


@pytest.mark.parametrize("width", [4.8, 2.4])
def test_state_can_be_read_from_a_picture(width):
    """Would break: drawing to whole pixels (0.057 m wide), a leaning pole drawn to the wrong side, a wrong scale."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, angle = rng.uniform(-0.85, 0.85), rng.uniform(-0.2, 0.2)
        assert read(picture(x, angle, width=width), width) == pytest.approx((x, angle), abs=5e-4)


def test_pixels_are_shown_as_they_are():
    """Would break: a rendered picture that is not what the agent sees."""
    env = gym.make(PIXELS, render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    assert np.array_equal(env.render()[2::5, 2::5], np.repeat(obs[-1][:, :, None], 3, 2))
    assert env.metadata["render_fps"] == 25


def test_endless_cartpole():
    """Would break: a time limit, or a pole that never falls."""
    env = gym.make(ENDLESS)
    state, _ = env.reset(seed=0)
    for _ in range(3000):
        state, reward, terminated, truncated, _ = env.step(balance(state))
        assert reward == 1 and not terminated and not truncated and state in env.observation_space
    bare = CartPoleEnv()
    env.reset(seed=1)
    bare.reset(seed=1)
    for _ in range(100):
        state, reward, last, truncated, _ = env.step(0)
        assert np.array_equal(state, bare.step(0)[0]) and reward == 1 and not truncated
        if last:
            break
    assert abs(state[2]) > np.radians(12) and state in env.observation_space


# -------------------------------------------------------------------------------------------- CartPole in an engine


def test_physics_cartpole_is_cartpole_five_times_heavier():
    """Would break: other masses, lengths or inertias, a force of another size or to the other side."""
    env, bare = gym.make(PHYSICS).unwrapped, CartPoleEnv()
    bare.masscart, bare.masspole, bare.force_mag, bare.gravity, bare.tau = (
        5.0,
        0.5,
        50.0,
        9.81,
        5e-5,
    )
    bare.total_mass, bare.polemass_length = 5.5, 0.25
    obs, _ = env.reset(seed=0)
    for action in (1, 0, 0, 1, 1):
        bare.state = obs.astype(float)
        for _ in range(1000):  # 0.05 s
            state = bare.step(action)[0]
        obs = env.step(action)[0]
        np.testing.assert_allclose(obs, state, atol=3e-4)


@pytest.mark.parametrize(("place", "limit"), [(0, 10.0), (1, 0.2095)])
def test_physics_cartpole_ends(place, limit):
    """Would break: another bound, a sign forgotten, an end that pays nothing."""
    env = gym.make(PHYSICS).unwrapped
    env.reset(seed=0)
    env.advance = lambda control: None  # nothing moves
    for sign in (-1, 1):
        for beyond in (False, True):
            env.data.qpos[:] = 0
            env.data.qpos[place] = sign * (limit + (1e-5 if beyond else -1e-5))
            assert env.step(0)[1:4] == (1.0, beyond, False)


def test_physics_cartpole_can_be_held():
    """Would break: a task that cannot be solved; another time limit; observations out of their space."""
    for seed in range(3):
        env = gym.make(PHYSICS)
        obs, _ = env.reset(seed=seed)
        assert np.abs(obs).max() <= 0.05
        for step in range(1, 501):
            obs, reward, terminated, truncated, _ = env.step(balance(obs))
            assert (
                reward == 1
                and not terminated
                and truncated == (step == 500)
                and obs in env.observation_space
            )


# ------------------------------------------------------------------------------------------------ Ball on a plate


def no_torque(env) -> np.ndarray:
    """One step of 0.01 s without a torque; the observation."""
    env.advance(np.zeros(2))
    return env.observe()


def test_ball_falls_from_20_cm():
    """Would break: another height, another gravity, a ball in the plate from the start, a clock that goes on."""
    env = gym.make(PLATE).unwrapped
    env.reset(seed=1)
    env.step(0)
    obs, _ = env.reset(seed=0)
    assert np.abs(obs[:2]).max() <= 0.01 and obs[2] == pytest.approx(0.38) and not obs[3:].any()
    env.substeps = 1
    while obs[5] == pytest.approx(-9.81 * env.data.time, abs=1e-3):
        obs = no_torque(env)
    assert env.data.time == pytest.approx(np.sqrt(2 * 0.20 / 9.81), abs=0.005)


def test_ball_neither_sinks_nor_bounces():
    """Would break: a contact so soft that the ball sinks, or so hard that it springs off or explodes."""
    env = gym.make(PLATE).unwrapped
    env.reset(seed=0)
    env.data.qpos[2:4] = 0
    heights = (
        np.array([no_torque(env)[2] for _ in range(100)]) - 0.18
    )  # above where a ball on the plate has its centre
    assert heights[25:].max() < 1e-4 and heights.min() > -0.004
    assert np.abs(heights[-50:]).max() < 2e-4


@pytest.mark.parametrize("axis", [0, 1])
def test_ball_rolls_without_slipping(axis):
    """Would break: a ball that slides (g sin in place of 5/7 g sin), sticks, or is hollow."""
    env = gym.make(PLATE).unwrapped
    env.reset(seed=0)
    env.data.qpos[2:5] = 0, 0, 0.18
    env.model.dof_damping[:2] = 1e6  # hold the plate, and tilt the world
    env.model.opt.gravity[axis], env.model.opt.gravity[2] = (
        9.81 * np.sin(0.02),
        -9.81 * np.cos(0.02),
    )
    for _ in range(30):
        obs = no_torque(env)
    assert obs[3 + axis] == pytest.approx(5 / 7 * 9.81 * np.sin(0.02) * 0.3, rel=0.02)


@PLATES
def test_torques_turn_their_axis_their_way(env_id):
    """Would break: an action that turns the wrong axis or the wrong way, another torque or another inertia."""
    actions = (
        range(4) if env_id == PLATE else np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    )
    for action, expected in zip(actions, ((1, 0), (-1, 0), (0, 1), (0, -1))):
        env = gym.make(env_id).unwrapped
        env.reset(seed=0)
        for _ in range(15):  # the ball is in the air
            obs, *_ = env.step(action)
        np.testing.assert_allclose(
            obs[6:], np.array(expected) * 0.0003 / INERTIA * 0.15**2 / 2, rtol=0.03, atol=1e-9
        )


def test_continuous_torques_are_proportional_and_clipped():
    """Would break: a torque beyond the motor's, or one that knows only full strength."""
    env = gym.make(PLATE_BOX).unwrapped
    env.reset(seed=0)
    for action, torque in (([0.5, -0.25], [0.00015, -0.000075]), ([3, -3], [0.0003, -0.0003])):
        env.step(np.array(action, dtype=np.float32))
        np.testing.assert_allclose(env.data.ctrl, torque)


@PLATES
def test_plate_ends_when_the_ball_is_low(env_id):
    """Would break: another height, an end at the plate's edge, an end that pays nothing."""
    env = gym.make(env_id)
    env.reset(seed=0)
    env.unwrapped.data.qpos[2:5] = 0.2, 0, 0.18  # beside the plate
    terminated, lowest = False, 0.18
    while not terminated:
        assert lowest >= 0.1  # else it should have ended before
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        lowest = obs[2]
        assert reward == 1 and not truncated and obs in env.observation_space
    assert 0.08 < lowest < 0.1


def tilt(obs: np.ndarray, continuous: bool):
    """A linear policy without memory, from what the agent sees: the poles of each axis' linear model, without delay,
    are at 2.2 rad/s; the only damping is the hinges'."""
    x, y, _, speed_x, speed_y, _, pitch, roll = obs
    damping, square, slope = 0.0005 / INERTIA, 2.2**2, 5 / 7 * 9.81
    k_angle, k_speed = damping**2 / 4 + 2 * square, damping * square / slope
    k_place = square**2 / slope + 0.0007 * 9.81 / INERTIA
    torque = (
        k_place * np.array([y, -x])
        + k_speed * np.array([speed_y, -speed_x])
        - k_angle * np.array([pitch, roll])
    )
    if continuous:
        return (torque * INERTIA / 0.0003).clip(-1, 1).astype(np.float32)
    axis = int(abs(torque[1]) > abs(torque[0]))
    return 2 * axis + int(torque[axis] < 0)


@PLATES
def test_plate_can_be_balanced_for_60_s(env_id):
    """Would break: a task that cannot be solved from what the agent sees; another time limit; another frequency."""
    env = gym.make(env_id)
    obs, _ = env.reset(seed=0)
    for step in range(1, 6001):
        obs, reward, terminated, truncated, _ = env.step(tilt(obs, env_id == PLATE_BOX))
        assert reward == 1 and not terminated and truncated == (step == 6000)
        if step % 100 == 0:
            assert obs in env.observation_space and abs(obs[6:]).max() < 0.1
    assert env.unwrapped.data.time == pytest.approx(60)


def test_plate_falls_without_control():
    """Would break: a task that solves itself."""
    for action in range(2):
        env = gym.make(PLATE)
        env.reset(seed=action)
        assert any(env.step(2 * (step % 2) + action)[2] for step in range(1500))


def test_stacked_plate():
    """Would break: another order, other units or another task than the plate's; a step that pays for one of four."""
    plate, stack = gym.make(PLATE), gym.make(STACKED)
    assert stack.spec.max_episode_steps * 4 == plate.spec.max_episode_steps
    assert stack.observation_space.shape == (24,) and stack.action_space == plate.action_space
    centre, units = (
        np.array([0, 0, 0.18, 0, 0, 0, 0, 0]),
        np.array([0.05] * 3 + [0.2] * 3 + [0.05] * 2),
    )
    seen, obs = [plate.reset(seed=3)[0]] * 3, stack.reset(seed=3)[0]
    for step in range(60):
        np.testing.assert_allclose(obs, ((seen[-3:] - centre) / units).ravel(), atol=1e-5)
        action = step * 7 % 4
        obs, reward, terminated, *_ = stack.step(action)
        rewards = [plate.step(action) for _ in range(4)]
        seen.append(rewards[-1][0])
        assert reward == sum(row[1] for row in rewards) and terminated == rewards[-1][2]
    assert np.ptp(seen, axis=0).min() > 0.001


# --------------------------------------------------------------------------------------------- an arm, a rare reward


def test_the_arm_is_pushers():
    """Would break: other physics, starts, units of the torque or order of the observation than Pusher-v5's."""
    arm, pusher = gym.make(REACH), gym.make("Pusher-v5")
    rng = np.random.default_rng(0)
    for seed in range(3):
        obs, theirs = arm.reset(seed=seed)[0], pusher.reset(seed=seed)[0]
        for _ in range(20):
            assert np.array_equal(obs, theirs.astype(np.float32))
            action = rng.uniform(-1.5, 1.5, 7).astype(np.float32)
            obs, reward, terminated, truncated, _ = arm.step(action)
            theirs = pusher.step(2 * np.clip(action, -1, 1))[0]
            assert (reward, terminated, truncated) == (0.0, False, False)


def reach_out(arm, seed: int) -> float:
    """The return where the hand is pulled towards the cylinder, by the transposed Jacobian."""
    body = arm.unwrapped.model.body("tips_arm").id
    obs, _ = arm.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        jacobian = np.zeros((3, 11))
        mujoco.mj_jacBody(arm.unwrapped.model, arm.unwrapped.data, jacobian, None, body)
        pull = 10 * (obs[17:20] - obs[14:17]) @ jacobian[:, :7] - 0.1 * obs[7:14]
        obs, reward, terminated, truncated, _ = arm.step(pull.astype(np.float32))
        total += reward
        ended = terminated or truncated
    return total


def test_the_arm_can_reach():
    """Would break: cylinders that the hand cannot get to within the 100 steps."""
    assert [reach_out(gym.make(REACH), seed) for seed in range(10)] == [1.0] * 10


@pytest.mark.parametrize("distance", [-0.005, 0.005])
def test_the_arm_is_paid_once(distance):
    """Would break: another border than the documented one, a reward without an end, an end without a reward."""
    arm = gym.make(REACH).unwrapped
    reach_out(gym.wrappers.TimeLimit(arm, 100), seed=1)
    qpos = arm.data.qpos.copy()
    arm.set_state(qpos, np.zeros(11))  # a step leaves the places those of before it
    hand, cylinder, _ = arm._get_obs()[14:].reshape(3, 3)
    border = np.sqrt(0.1**2 - (cylinder - hand)[2] ** 2)
    to = hand[:2] + np.array([0, border + distance])
    qpos[7:9] += (to - cylinder[:2])[::-1]  # its joints slide along y, then along x
    arm.set_state(qpos, np.zeros(11))
    arm.model.opt.timestep = 1e-9  # nothing moves in a step
    _, reward, terminated, truncated, _ = arm.step(np.zeros(7, np.float32))
    assert (reward, terminated, truncated) == (float(distance < 0), distance < 0, False)
