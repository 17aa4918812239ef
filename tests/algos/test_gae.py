"""Generalized advantage estimation against numbers worked out by hand and against its definition."""

import pytest
import torch
from conftest import load

# gamma = lambda = 1/2, so gamma x lambda = 1/4. Two environments (columns), five steps (rows).
#
# Environment 0 terminates in row 1; row 2 is its autoreset step (obs is the terminal state, reward is junk).
#   row 4: delta = 4 + 8/2 - 2 = 6    A = 6                        the rollout ends here: bootstrap from V = 8
#   row 3: delta = 3 + 2/2 - 1 = 3    A = 3 + 6/4 = 4.5
#   row 2: autoreset step, never used
#   row 1: delta = 2 + 0 - 4 = -2     A = -2                       terminal: worth nothing, and the recursion stops
#   row 0: delta = 1 + 4/2 - 2 = 1    A = 1 - 2/4 = 0.5
# Environment 1 is truncated in row 2; row 3 is its autoreset step, whose observation is the true final one, V = 10.
#   row 4: delta = 5 + 4/2 - 3 = 4    A = 4
#   row 3: autoreset step, never used
#   row 2: delta = 2 + 10/2 - 6 = 1   A = 1                        bootstraps from V = 10, and the recursion stops
#   row 1: delta = 1 + 6/2 - 2 = 2    A = 2 + 1/4 = 2.25
#   row 0: delta = 1 + 2/2 - 4 = -2   A = -2 + 2.25/4 = -1.4375
# With truncation treated as termination:
#   row 2: delta = 2 - 6 = -4         A = -4
#   row 1: delta = 2                  A = 2 - 4/4 = 1
#   row 0: delta = -2                 A = -2 + 1/4 = -1.75
JUNK = 77.0
REWARDS = torch.tensor([[1, 1], [2, 1], [JUNK, 2], [3, JUNK], [4, 5]])
VALUES = torch.tensor([[2, 4], [4, 2], [6, 6], [1, 10], [2, 3], [8, 4.0]])
TERMINATEDS = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0.0]])
TRUNCATEDS = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 0], [0, 0.0]])
DONES = TERMINATEDS + TRUNCATEDS
VALID = torch.tensor([[1, 1], [1, 1], [0, 1], [1, 0], [1, 1]], dtype=torch.bool)
BY_HAND = torch.tensor([[0.5, -1.4375], [-2, 2.25], [0, 1], [4.5, 0], [6, 4]])
BY_HAND_NO_BOOTSTRAP = torch.tensor([[0.5, -1.75], [-2, 1], [0, -4], [4.5, 0], [6, 4]])


@pytest.fixture
def algo():
    """compute_gae is one for all files (test_files.py)."""
    return load("ppo_continuous")


def test_by_hand(algo):
    """Would break: a bootstrap from a terminal state, none from a truncated one, a recursion through a `done`."""
    advantages = algo.compute_gae(REWARDS, VALUES, TERMINATEDS, DONES, 0.5, 0.5)
    assert advantages.shape == REWARDS.shape
    assert torch.equal(advantages[VALID], BY_HAND[VALID])


def test_truncation_as_termination_by_hand(algo):
    """Would break: --no-bootstrap-truncation that still looks at the value of the final observation."""
    advantages = algo.compute_gae(REWARDS, VALUES, DONES, DONES, 0.5, 0.5)
    assert torch.equal(advantages[VALID], BY_HAND_NO_BOOTSTRAP[VALID])
