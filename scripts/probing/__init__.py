"""The checks of scripts/probe.py: environments, the file under test and a traced run of it, and the checks themselves,
in the order in which they stand in CHECKS: a failure far down is often the consequence of one further up."""

# isort: off
from probing.subject import CHECKS  # noqa: F401
from probing import policy, q_learning, run, augmentation, ranks, runners, curiosity, learned  # noqa: F401
