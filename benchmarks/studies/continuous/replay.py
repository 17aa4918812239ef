"""Are EnvPool's MuJoCo tasks Gymnasium's? The same actions from the same states in both.

    python benchmarks/studies/continuous/replay.py

Episodes of EnvPool with random actions are played again in Gymnasium. On Pusher-v5, where a torque lasts ten steps and
the arm sometimes touches the object, also with one of MuJoCo's flags changed.
"""

import envpool
import gymnasium as gym
import mujoco
import numpy as np

LEFT_OUT = {  # coordinates of the root that the observation lacks; position and velocity follow
    "HalfCheetah-v5": 1,
    "Hopper-v5": 1,
    "Walker2d-v5": 1,
    "Swimmer-v5": 2,
    "Ant-v5": 2,
}
SLIDES = ("object", 7), ("goal", 9)  # of Pusher: body, its first slide in qpos


def play_envpool(task: str, num_envs: int, num_steps: int, repeat: int):
    """Observations (num_steps + 1, num_envs, ...) and actions (num_steps, num_envs, ...)."""
    envs = envpool.make(task, env_type="gymnasium", num_envs=num_envs, seed=1)
    space = envs.action_space
    shape = num_steps // repeat, num_envs, *space.shape
    actions = np.random.default_rng(1).uniform(space.low, space.high, shape)
    actions = actions.repeat(repeat, axis=0).astype(np.float32)
    first, _ = envs.reset()
    obs = [first]
    for action in actions:
        next_obs, *_ = envs.step(action)
        obs.append(next_obs)
    return np.array(obs), actions


def replay(env, states: list, actions) -> np.ndarray:
    """Observations (num_steps, num_envs, ...) of Gymnasium's environment from the states (position, velocity)."""
    episodes = []
    for n, (position, velocity) in enumerate(states):
        env.set_state(position, velocity)
        episodes.append([env.step(action)[0] for action in actions[:, n]])
    return np.stack(episodes, axis=1)


def compare(task: str) -> None:
    """The largest difference of a position or velocity in ten steps of 20 environments."""
    obs, actions = play_envpool(task, num_envs=20, num_steps=10, repeat=1)
    env, left_out = gym.make(task).unwrapped, LEFT_OUT[task]
    env.reset(seed=1)
    num_positions = env.model.nq - left_out
    size = num_positions + env.model.nv
    states = []
    for first in obs[0]:
        position = np.append(np.zeros(left_out), first[:num_positions])
        states.append((position, first[num_positions:size]))
    error = np.abs(replay(env, states, actions) - obs[1:])[..., :size].max()
    print(f"{task}: at most {error:.0e}")


def compare_pusher(flags: int, words: str) -> None:
    """How far the object is from where EnvPool has it, in 100 episodes."""
    obs, actions = play_envpool("Pusher-v5", num_envs=100, num_steps=100, repeat=10)
    env = gym.make("Pusher-v5").unwrapped
    env.reset(seed=1)
    env.model.opt.disableflags |= flags
    # The slides are in the order y, x
    origins = [env.data.body(name).xpos[1::-1] - env.data.qpos[k : k + 2] for name, k in SLIDES]
    states = []
    for first in obs[0]:
        position, velocity = env.init_qpos.copy(), np.zeros(env.model.nv)
        position[:7], velocity[:7] = first[:7], first[7:14]
        position[7:9] = first[18:16:-1] - origins[0]
        position[9:] = first[21:19:-1] - origins[1]
        states.append((position, velocity))
    again = replay(env, states, actions)
    errors = np.abs(again - obs[1:])[..., 17:20].max(axis=(0, 2))
    far = f"in {(errors > 1e-3).sum()} of 100 episodes more than 1 mm"
    print(f"Pusher-v5, {words}: the object is at most {errors.max():.0e} m away, {far}")


def main() -> None:
    print(f"EnvPool {envpool.__version__} against Gymnasium with MuJoCo {mujoco.__version__}")
    for task in LEFT_OUT:
        compare(task)
    compare_pusher(0, "as it is")
    compare_pusher(int(mujoco.mjtDisableBit.mjDSBL_MULTICCD), "MULTICCD disabled")


if __name__ == "__main__":
    main()
