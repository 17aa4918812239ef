"""Custom Gymnasium environments, registered when this package is imported: gym.make("envs:BalancingPlate-v0").

The physics engine and other libraries are imported only when an environment is made.
"""

import gymnasium as gym

for name, entry_point, limit, kwargs in (
    ("CartPolePixels-v0", "cartpole:CartPolePixels", None, {}),  # has its own time limit: max_steps
    ("CartPoleEndless-v0", "cartpole:CartPoleEndless", None, {}),
    ("PhysicsCartPole-v0", "physics_cartpole:PhysicsCartPole", 500, {}),
    ("BalancingPlate-v0", "balancing_plate:BalancingPlate", 6000, {}),
    ("BalancingPlateStacked-v0", "balancing_plate:StackedPlate", 1500, {}),
    ("BalancingPlateContinuous-v0", "balancing_plate:BalancingPlate", 6000, {"continuous": True}),
    ("ArmReach-v0", "arm_reach:ArmReach", 100, {}),
    ("CartPoleNoVel-v0", "memory:PositionsOnly", None, {"env_id": "CartPole-v1", "kept": (0, 2)}),
    ("PendulumNoVel-v0", "memory:PositionsOnly", None, {"env_id": "Pendulum-v1", "kept": (0, 1)}),
    ("RecallCue-v0", "memory:RecallCue", None, {}),
    ("Switchboard-v0", "masked:Switchboard", None, {}),
    ("SwitchboardNoMask-v0", "masked:Switchboard", None, {"masks": False}),
):
    gym.register(name, f"{__name__}.{entry_point}", max_episode_steps=limit, kwargs=kwargs)
