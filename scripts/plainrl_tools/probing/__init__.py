"""The checks of scripts/probe.py, with their environments, the file under test and a traced run of it. CHECKS is
ordered: a failure is often the consequence of an earlier one."""

# ruff: noqa: F401
# isort: off
from plainrl_tools.probing.subject import CHECKS
from plainrl_tools.probing import (
    policy,
    q_learning,
    run,
    augmentation,
    ranks,
    runners,
    curiosity,
    learned,
)
