"""scripts/probe.py accepts correct modifications, ranks its findings, and reports files that it cannot check.

tests/probe lists the mistakes that it must find, and changes.txt the correct modifications that it must accept."""

import inspect
import json
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import probe
import pytest
import torch
import tyro
from ale_py import AtariVectorEnv
from conftest import C51, LSTM, MULTI, OFF_POLICY, PQN, ROOT, SEEDS, command_line, faster, script
from plainrl_tools import edits
from plainrl_tools.probing import environments, learned, run
from plainrl_tools.probing.subject import peak

PROBE = ROOT / "scripts" / "probe.py"


def run_probe(*flags, cwd) -> tuple[int, str, str]:
    process = command_line(*flags, script=PROBE, cwd=cwd)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


@pytest.fixture
def probed(tmp_path, monkeypatch, capsys):
    """run_probe in this process and in tmp_path, without the seconds that a new process needs."""

    def call(*flags) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        with warnings.catch_warnings(action="ignore"):
            try:
                status = probe.main(tyro.cli(probe.Options, args=[str(flag) for flag in flags]))
            except SystemExit as end:
                status = end.code
        return status, *capsys.readouterr()

    return call


def edited(name: str, *changes: tuple[str, str, str]) -> str:
    """Text of an algorithm's file with changes (place, fragment, what replaces it), as in tests/probe."""
    listed = [(place, old.split("\n"), new.split("\n")) for place, old, new in changes]
    return edits.apply(script(name).read_text(), listed)


def test_a_chain_of_failures_is_shown_by_its_first():
    """Would break: a failed check that the report omits, because its cause is explained by another check."""
    chain = ["conjugate-gradient", "natural-gradient", "trust-region"]
    assert chain[0] in probe.CHECKS[chain[1]].follows and chain[1] in probe.CHECKS[chain[2]].follows
    found = [probe.Result(name, "update", "broken", "1", "2", "") for name in chain]
    probe.explain(found)
    text = probe.report(Path("x.py"), found)
    assert "broken: " in text and f"may also explain: {chain[1]}, {chain[2]}" in text
    found = [probe.Result(name, "update", "broken", "1", "2", "") for name in chain]
    found[1].verdict = "differs"
    probe.explain(found)
    assert [result.explained_by for result in found] == ["", chain[0], chain[1]]


def findings(file: Path) -> list:
    """What the probe says about a file, without the learned checks."""
    with warnings.catch_warnings(action="ignore"):
        subject = probe.open_subject(file, seed=1)
        trained = probe.run_check(subject, "trains")
        if trained.verdict != "passes":
            return [trained]
        names = [name for name in probe.CHECKS if subject.applies(name)]
        return probe.run_all(subject, [name for name in names if not name.startswith("learns-")])


CHANGES = edits.read(edits.CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["name"])
def test_right_modification_is_not_called_broken(change, tmp_path):
    """Would break: a check that accepts only the published algorithm, or that relies on assumptions of the probe."""
    text = script(change["file"]).read_text()
    (tmp_path / "changed.py").write_text(faster(edits.apply(text, change["edits"])))
    results = findings(tmp_path / "changed.py")
    assert not [result for result in results if result.verdict == "broken"]
    assert len({result.measured for result in results if result.verdict == "could not check"}) <= 2
    assert len({change["name"] for change in CHANGES}) == len(CHANGES) >= 20


def test_question(probed, tmp_path):
    """Would break: a modification that is not reported, or that fails without --strict."""
    adam = "train", "optim.Adam(", "optim.AdamW("
    decay = "train", "eps=1e-5", "weight_decay=0.01"
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", adam, decay))
    status, out, err = probed("mine.py", "--only", "optimiser", "gae")
    assert (status, err) == (0, "")
    assert out.startswith("mine.py: differs (1 differs, 1 passes)\n2 checks, ")
    assert "the optimiser is AdamW with weight decay 0.01; is this intended?" in out
    assert probed("mine.py", "--only", "optimiser", "--strict")[0] == 1


def test_most_likely_cause_comes_first(probed, tmp_path):
    """Would break: findings in the order of the checks alone, consequences shown as causes, truncated text."""
    text = edited("ppo_continuous", ("compute_gae", "1 - dones", "1 - 0 * dones"))
    (tmp_path / "wrong.py").write_text(text)
    only = ("gae", "seeds", "learns-delayed-reward")
    status, out, _ = probed("wrong.py", "--only", *only)
    lines = out.splitlines()
    assert status == 1 and lines[0].startswith("wrong.py: broken (")
    assert lines[3].startswith("broken: compute_gae, gae")
    assert (
        lines[4].strip()
        == "the recursion continues across episode boundaries: the mask `(1 - dones)` is missing"
    )
    assert "broken: " not in "\n".join(lines[5:]), (
        "a learned check is not a cause if an exact check fails"
    )
    status, out, _ = probed("wrong.py", "--only", "gae", "--json")
    keys = ["check", "expected", "explained_by", "hint", "measured", "section", "verdict"]
    assert status == 1 and [sorted(row) for row in json.loads(out)] == [keys]


def test_check_that_raises(probed, tmp_path):
    """Would break: an error of the probe shown as one of the file, or with an unrelated hint."""
    head, start, body = script("ppo_continuous").read_text().partition("def compute_gae(")
    text = head + start + body.replace("rewards", "r_", 1).replace("len(rewards)", "len(r_)", 1)
    text = text.replace("deltas = rewards +", "deltas = r_ +")
    (tmp_path / "renamed.py").write_text(text)
    status, out, _ = probed("renamed.py", "--only", "gae")
    assert status == 0 and out.startswith("renamed.py: could not check")
    assert "compute_gae takes r_, values, terminateds, dones, gamma, gae_lambda" in out


def test_error_of_the_probe(probed, tmp_path):
    """Would break: an error that the probe raises in a run of the file shown as a mistake in the file."""
    renamed = [("ppo_loss", f"agent{end}", f"net{end}") for end in (": Agent", ".get_a", ".get_v")]
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", *renamed))
    status, out, _ = probed("mine.py")
    assert status == 2 and out.startswith("mine.py: could not check (1 could not check)")
    assert "this is an error of the probe" in out and "KeyError: 'agent'" in out
    flags = "mine.py", "--only", "checkpoint"
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", *CHECKPOINT))
    status, out, _ = probed(*flags)
    assert status == 0 and "the checkpoint has no entry named agent" in out


CHECKPOINT = [("train", '"agent": agent.state_dict()', '"model": agent.state_dict()')]
CHECKPOINT += [("train", 'saved["agent"]', 'saved["model"]')]


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("train", "envs.step(action)", "envs.step(None)"),  # raised in the probe's environment
        ("train", "update(agent, optimizer, args", "update(agent, optimizer"),
        ("update", "loss_fn(agent, args, **", "loss_fn(agent, args, 1, **"),
    ],
)
def test_error_of_the_file(place, old, new, probed, tmp_path):
    """Would break: an error of the file, raised in what it calls, shown as one of the probe."""
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", (place, old, new)))
    status, out, _ = probed("mine.py")
    assert status == 1 and out.startswith("mine.py: broken (1 broken)")
    assert "the file raises this error" in out


NAN = "(torch.nan if len(x) > 1000 else 1)"
AGAIN = "(1 if torch.is_grad_enabled() or torch.is_inference_mode_enabled() else torch.nan)"  # in the probe's own calls


@pytest.mark.parametrize(
    ("check", "place", "old", "new"),
    [
        ("density", "Agent.get_action", "entropy().sum(-1)", f"entropy().sum(-1) * {NAN}"),
        ("rows-are-independent", "ppo_loss", "* entropy", f"* entropy * {AGAIN}"),
        ("rollout-draws", "Agent.get_action", "(action).sum(-1)", f"(action).sum(-1) * {AGAIN}"),
    ],
)
def test_nan_does_not_pass(check, place, old, new, probed, tmp_path):
    """Would break: a deviation of NaN, which is neither above nor below a tolerance, that passes."""
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", (place, old, new)))
    status, out, _ = probed("mine.py", "--only", check, "--strict")
    assert status == 1, out
    assert peak(np.array([0.1, -2.0]), torch.tensor(1.0), 1) == 2 and peak() == 0
    assert peak(0.5, torch.tensor([math.nan, 0.0])) == math.inf


DEEP = [  # eight hidden layers
    (
        "Agent.mlp",
        "layer_init(nn.Linear(64, 64)),\nactivation(),",
        "*[layer for _ in range(7) for layer in (layer_init(nn.Linear(64, 64)), nn.ReLU())],",
    ),
]
COPY = [  # an average of the policy's weights, in the agent
    ("module", "import argparse", "import argparse\nimport copy"),
    (
        "Agent.__init__",
        "self.critic =",
        "self.average = copy.deepcopy(self.actor_mean)\nself.critic =",
    ),
    (
        "update",
        "optimizer.step()",
        "optimizer.step()\npairs = zip(agent.average.parameters(), agent.actor_mean.parameters())\n"
        "for slow, fast in pairs:\n    slow.data.lerp_(fast.data, 0.05)",
    ),
]
APART = [  # an agent of averaged weights, beside the trained one
    ("module", "import argparse", "import argparse\nimport copy"),
    (
        "train",
        "policy = maybe_compile(agent.get_action, args)",
        "average = copy.deepcopy(agent)\npolicy = maybe_compile(agent.get_action, args)",
    ),
    (
        "train",
        "check_finite(",
        "pairs = zip(average.state_dict().values(), agent.state_dict().values())\n"
        "for slow, fast in pairs:\n    slow.lerp_(fast, 0.1)\ncheck_finite(",
    ),
    ("train", "evaluate(agent,", "evaluate(average,"),
]
VALUE_PENALTY = "value_loss = 0.5 * value_error.mean() + 1e-3 * (value**2).mean()"
ACCUMULATED = [  # a step for every two updates
    ("update", "optimizer.zero_grad()", "agent.calls = getattr(agent, 'calls', 0) + 1"),
    (
        "update",
        "optimizer.step()",
        "if agent.calls % 2 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
    ),
]


@pytest.mark.parametrize(
    ("name", "check", "changes", "verdict", "words"),
    [
        (
            "dqn",
            "rows-are-independent",
            [("Agent.forward", "(obs)  #", "(obs) - self.network(obs).mean()  #")],
            "broken",
            "the value of one observation depends on the others in the batch",
        ),
        (
            "ppo_squashed",
            "evaluation-returns",
            [("evaluate", "agent.actor_mean(x)", "agent.actor_mean(x).tanh()")],
            "broken",
            "the evaluation squashes actions once more than the training",
        ),
        (
            "ppo_continuous",
            "evaluation-returns",
            [*COPY, ("evaluate", "agent.actor_mean(x)", "agent.average(x)")],
            "differs",
            "deterministic, but not those of the trained network",
        ),
        ("ppo_squashed", "density", DEEP, "passes", ""),
        ("ppo_continuous", "evaluation-returns", APART, "differs", "another agent than update()"),
        ("ppo_continuous", "checkpoint", APART, "passes", ""),
        ("ppo_continuous", "resuming", APART, "passes", ""),
        (
            "ppo_continuous",
            "value-loss",
            [("ppo_loss", "value_loss = 0.5 * value_error.mean()", VALUE_PENALTY)],
            "differs",
            "a small term is added to the loss of the value",
        ),
        ("reinforce", "resuming", ACCUMULATED, "passes", ""),
        ("reinforce", "annealing", ACCUMULATED, "passes", ""),
        ("reinforce", "logged-losses", ACCUMULATED, "passes", ""),
    ],
)
def test_what_a_check_says(name, check, changes, verdict, words, tmp_path):
    """Would break: a mistake that a check for policies alone or for small actions alone does not see, an average of the
    weights or accumulated gradients called a mistake."""
    (tmp_path / "mine.py").write_text(edited(name, *changes))
    subject = probe.open_subject(tmp_path / "mine.py", seed=1)
    with warnings.catch_warnings(action="ignore"):
        assert probe.run_check(subject, "trains").verdict == "passes"
        result = probe.run_check(subject, check)
    assert result.verdict == verdict and words in result.hint


def test_harmless_difference_excuses_no_impossible_value(monkeypatch, probed, tmp_path):
    """Would break: exit status 0 for values that no rewards can have, since another check asks a question."""
    subject = probe.open_subject(script("dqn"), seed=1)
    assert probe.run_check(subject, "trains").verdict == "passes"
    right = {"Constant": np.array([1.0])}
    for values, verdict in {
        (25.3, 25.3): "broken",
        (math.nan, 1.0): "broken",
        (4.1, 4.1): "differs",
    }.items():
        found = right | {"Endless": np.array(values)}
        monkeypatch.setattr(learned, "learn", lambda _, name, *a, f=found, **k: (f[name], None))
        subject.unusual = True
        assert probe.run_check(subject, "learns-endless-value").verdict == verdict
    for name, unusual in {"flags": False, "replay-contents": True}.items():
        result = probe.Result(name, "train", "differs", "1", "2", "")
        monkeypatch.setattr(probe, "run_check", lambda *a, r=result: r)
        subject.unusual = False
        probe.run_all(subject, [name])
        assert subject.unusual == unusual


def test_learned_check_of_its_mistake(tmp_path):
    """Would break: a learned check that passes with the mistake that it is for."""
    mistake = "train", "terminated if args.bootstrap_truncation else done", "done"
    (tmp_path / "wrong.py").write_text(edited("ppo_continuous", mistake))
    subject = probe.open_subject(tmp_path / "wrong.py", seed=1)
    subject.suspect = True  # skip the longer trials for slow learners
    assert probe.run_check(subject, "trains").verdict == "passes"
    assert probe.run_check(subject, "learns-endless-value").verdict == "broken"


FUNCTIONS = "make_envs Agent update evaluate train compute_gae a_loss"
EMPTY = "class Args: pass\n" + "".join(f"def {name}(): pass\n" for name in FUNCTIONS.split())


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        (None, [], "wrong.py does not exist"),
        ("import nothing_of_this_name", [], "cannot be imported (ModuleNotFoundError"),
        ("x = 1", [], "compute_gae or n_step_returns or compute_returns or td_target"),
        ("def f(:", [], "wrong.py cannot be imported (SyntaxError"),
        ("import sys; sys.exit('bye')", [], "wrong.py cannot be imported (SystemExit: bye)"),
        (EMPTY, [], "wrong.py: a_loss takes no samples; keep the arguments of the file"),
        ("x = 1", ["--only", "gea"], "--only gea: unknown check. --list shows the names"),
        ("x = 1", ["--seed", "-1"], "--seed -1 must be between 0 and 2**30 - 1"),
    ],
)
def test_bad_input(text, flags, words, tmp_path):
    if text is not None:
        (tmp_path / "wrong.py").write_text(text)
    status, out, err = run_probe("wrong.py", *flags, cwd=tmp_path)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err


def test_flags_of_the_file(probed, tmp_path):
    """Would break: a change behind a flag that is off by default, which no run of the probe switches on."""
    switch = "Args", "env_id: str =", "frozen: bool = False\nenv_id: str ="
    update = "train", "agent.obs_rms.update(", "args.frozen or agent.obs_rms.update("
    text = edited("ppo_continuous", switch, update)
    (tmp_path / "mine.py").write_text(text)
    flags = "mine.py", "--only", "observation-statistics"
    assert probed(*flags)[0] == 0
    status, out, _ = probed(*flags, "--", "--frozen")
    assert status == 1 and "the normaliser is no longer updated" in out
    for words in (["--freezing"], ["--gamma", "2"]):
        status, out, err = probed(*flags, "--", *words)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert "mine.py does not accept the flags: " in err and words[0] in err
        assert "sweep" not in err


@pytest.mark.parametrize(
    ("name", "words"), [("", "is a folder"), ("text.md", "is not a Python file")]
)
def test_what_is_no_python_file(name, words, probed, tmp_path):
    """Would break: a folder reported as missing, or an error of importlib."""
    (tmp_path / "text.md").touch()
    status, out, err = probed(tmp_path / name)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err


def test_file_that_does_not_run(probed, tmp_path):
    """Would break: forty failures instead of the one that matters."""
    start = "torch.set_num_threads("
    text = edited("ppo_continuous", ("train", start, f"1 / 0\n{start}"))
    (tmp_path / "wrong.py").write_text(text)
    status, out, _ = probed("wrong.py")
    assert status == 1 and "1 checks" in out and "ZeroDivisionError: division by zero" in out


def test_findings_come_last(probed, tmp_path):
    """Would break: findings that the list of passes hides."""
    adam = "train", "optim.Adam(", "optim.AdamW("
    (tmp_path / "mine.py").write_text(edited("ppo_continuous", adam))
    flags = "mine.py", "--only", "optimiser", "gae"
    short, whole = probed(*flags)[1], probed(*flags, "--verbose")[1]
    assert "gae" not in short and "--verbose lists all checks" in short
    rows, _, found = whole.partition("\n\n")
    assert [row.split()[:2] for row in rows.splitlines()] == [
        ["passes", "gae"],
        ["differs", "optimiser"],
    ]
    drop = lambda text: [line for line in text.splitlines() if " checks, " not in line]  # noqa: E731
    assert drop(found) == drop(short) and short.rstrip().splitlines()[-1].startswith("    measured")


def test_help_has_every_exit_status(tmp_path):
    """Would break: an exit status that --help does not explain."""
    status, out, _ = run_probe("--help", cwd=tmp_path)
    text = " ".join(out.replace("│", " ").split())
    assert status == 0
    for words in (
        "exit status 1",
        "with --strict 1",
        "exit status 0",
        "exit status is 2 if",
        "130",
    ):
        assert words in text


def test_check_of_another_kind(probed):
    """Would break: a check that is silently skipped, or that runs on a file that it does not apply to."""
    status, out, err = probed(script("dqn"), "--only", "gae")
    assert (status, out) == (2, "") and "--only gae: does not apply to" in err
    status, out, err = probed(script("dqn_atari"), "--only", "best-model")
    words = "has nothing that --only best-model applies to"
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err
    _, out, _ = probed(script("dqn"), "--list")
    names = {line.split()[0] for line in out.splitlines()}
    assert {"td-target", "replay-rows", "logging"} <= names
    assert not {"gae", "clipping", "density", "normaliser", "learns-life-lost"} & names


UNKNOWN = {
    **dict.fromkeys(OFF_POLICY, "actor-critic files with a replay buffer"),
    **dict.fromkeys(PQN, "Q-learning without a replay buffer"),
    **dict.fromkeys(C51, "distributional Q-learning"),
    **dict.fromkeys(LSTM, "files with a recurrent policy"),
    **dict.fromkeys(MULTI, "actions of several components"),
    **dict.fromkeys(SEEDS, "several seeds in one process"),
    **dict.fromkeys(["ppo_pixels_rad", "ppo_pixels_drac"], "images that are shifted"),
    "ppo_pixels_continuous": "Box actions from images",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_file_of_an_unknown_kind(name, probed):
    """Would break: a page of failures of a right file, whose functions are not those that the checks know."""
    for flags in ([], ["--list"], ["--only", "td-target"]):
        status, out, err = probed(script(name), *flags)
        words = f"the probe does not know {UNKNOWN[name]} yet"
        assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err


def test_page_names_every_check():
    """Would break: docs/probe-checks.md that no longer matches the checks or the kinds of files."""
    page = (ROOT / "docs" / "probe-checks.md").read_text()
    rows = []
    for name, check in probe.CHECKS.items():
        kinds = " ".join(sorted(check.kinds)) or "all"
        about = " ".join(check.function.__doc__.split())
        rows.append(f"| `{name}` | {check.section} | {kinds} | {about} |")
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows
    table = sys.modules["plainrl_tools.probing.subject"].KINDS
    assert all(f"| {word} | {what} |" in page for word, (what, _) in table.items())


def played(envs, steps: int) -> list[tuple]:
    """(reward, terminated, truncated, lives, black frames of the stack, dtype and shape) of each step of the first."""
    obs, info = envs.reset(seed=3)
    rows = [(0, False, False, info["lives"][0], obs)]
    for _ in range(steps):
        obs, reward, terminated, truncated, info = envs.step(np.ones(envs.num_envs, np.int64))
        ends = bool(terminated[0]), bool(truncated[0])
        rows.append((float(reward[0]), *ends, info["lives"][0], obs))
    return [
        (*row[:4], [not frame.any() for frame in row[4][0]], row[4].dtype, row[4].shape)
        for row in rows
    ]


def test_games_are_like_atari():
    """Would break: checks on image games that differ from ale-py's in what the algorithms rely on."""
    real = AtariVectorEnv(
        game="breakout", num_envs=2, reward_clipping=False, max_num_frames_per_episode=60
    )
    ours = environments.AtariVector(environments.Arcade, "breakout", 2)
    assert real.metadata["autoreset_mode"] == ours.metadata["autoreset_mode"]
    for rows in (played(real, 60), played(ours, 60)):
        lives = rows[0][3]
        assert {row[5:] for row in rows} == {(np.dtype(np.uint8), (2, 4, 84, 84))}
        assert rows[0][4] == [True, True, True, False]
        ends = [k for k, row in enumerate(rows[:-1]) if row[1] or row[2]]
        assert len(ends) > 2
        for k in ends:  # the step after the end of an episode is an autoreset step
            assert rows[k][4] == [False] * 4 or k < 3
            assert rows[k + 1][:5] == (0.0, False, False, lives, [True, True, True, False])
    parameters = inspect.signature(AtariVectorEnv).parameters
    assert all(parameters[name].default == value for name, value in run.ATARI_DEFAULTS.items())
