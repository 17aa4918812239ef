"""Is EnvPool's Pusher-v5 Gymnasium's? The same actions from the same states in both.

    python benchmarks/studies/continuous/replay.py

Random torques last ten steps each, and sometimes the arm touches the object. EnvPool's episodes are played again in
Gymnasium, as it is and with one of MuJoCo's flags changed.
"""

import envpool
import gymnasium as gym
import mujoco
import numpy as np

ENVS, STEPS = 100, 100


def play_envpool():
    """Observations (STEPS + 1, ENVS, 23), actions (STEPS, ENVS, 7) and returns (ENVS,)."""
    envs = envpool.make("Pusher-v5", env_type="gymnasium", num_envs=ENVS, seed=1)
    torques = np.random.default_rng(1).uniform(-2, 2, (STEPS // 10, ENVS, 7))
    actions = torques.repeat(10, axis=0).astype(np.float32)
    first, _ = envs.reset()
    obs, returns = [first], np.zeros(ENVS)
    for action in actions:
        next_obs, reward, *_ = envs.step(action)
        obs.append(next_obs)
        returns += reward
    return np.array(obs), actions, returns


def replay(obs, actions, flags: int):
    """Largest distance (ENVS,) in meters between the object in Gymnasium and in EnvPool, and returns (ENVS,)."""
    env = gym.make("Pusher-v5").unwrapped
    env.reset(seed=1)
    env.model.opt.disableflags |= flags
    # The slides of object and goal are in the order y, x
    origins = [env.data.body(name).xpos[1::-1] - env.data.qpos[k : k + 2] for name, k in SLIDES]
    errors, returns = np.zeros(ENVS), np.zeros(ENVS)
    for n in range(ENVS):
        position, velocity = env.init_qpos.copy(), np.zeros(env.model.nv)
        position[:7], velocity[:7] = obs[0, n, :7], obs[0, n, 7:14]
        position[7:9] = obs[0, n, 18:16:-1] - origins[0]
        position[9:] = obs[0, n, 21:19:-1] - origins[1]
        env.set_state(position, velocity)
        for t, action in enumerate(actions[:, n]):
            next_obs, reward, *_ = env.step(action)
            error = np.abs(next_obs[17:20] - obs[t + 1, n, 17:20]).max()
            errors[n] = max(errors[n], error)
            returns[n] += reward
    return errors, returns


SLIDES = ("object", 7), ("goal", 9)  # body, its first slide in qpos


def main() -> None:
    obs, actions, returns = play_envpool()
    print(f"EnvPool {envpool.__version__}: return {returns.mean():.2f}")
    flags = {"as it is": 0, "MULTICCD disabled": int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)}
    for words, flag in flags.items():
        errors, again = replay(obs, actions, flag)
        far = f"the object is at most {errors.max():.1e} m away, in {(errors > 1e-3).sum()} episodes more than 1 mm"
        print(f"Gymnasium, MuJoCo {mujoco.__version__}, {words}: {far}; return {again.mean():.2f}")


if __name__ == "__main__":
    main()
