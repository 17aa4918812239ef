"""The checks of scripts/probe.py, with their environments, the file under test and a traced run of it. CHECKS is
ordered: a failure is often the consequence of an earlier one."""

# isort: off
from probing.subject import CHECKS  # noqa: F401
from probing import policy, q_learning, run, augmentation, ranks, runners, curiosity, learned  # noqa: F401
