"""When DQN explores, learns and copies its target network, counted on FakeAtari (see test_atari_rollout.py)."""

from conftest import files

pytestmark = files("dqn_atari")
TOTAL = 61


def test_first_update_has_something_to_draw(record):
    """Would break: --learning-starts so small that the replay holds the newest row only."""
    updates, _ = record(num_envs=2, learning_starts=8, train_frequency=1)
    assert [step for step, *_ in updates][:2] == [8, 8]
