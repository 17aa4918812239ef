"""The trained agents in models/: they can be played, and are what their evaluation says."""

import json

import enjoy
import pytest
from plainrl_tools.common import ROOT, load

make_models = load(ROOT / "benchmarks" / "make_models.py")
SEED = 10_007 % 2**30 + 2**30  # of the evaluation of a run with seed 1


@pytest.mark.parametrize("name", make_models.MODELS)
def test_model_plays(name, capsys):
    """Would break: a model that is missing, or that the file of today no longer reads."""
    run = ROOT / "models" / name
    summary = json.loads((run / "summary.json").read_text())
    assert (run / "checkpoint.pt").stat().st_size < 1_000_000
    assert summary["algo"] == make_models.MODELS[name].split()[0]
    enjoy.main(enjoy.Options(run=run, render=False, seeds=(SEED,)))
    assert "return" in capsys.readouterr().out
    row = f"| {summary['eval_return_mean']:.1f} ± {summary['eval_return_std']:.1f} |"
    (line,) = (
        line
        for line in (ROOT / "models/README.md").read_text().splitlines()
        if line.startswith(f"| `{name}` |")
    )
    assert row in line


@pytest.mark.parametrize("name", ["CartPole-v1", "RecallCue-v0", "Switchboard-v0"])
def test_model_reaches_its_evaluation(name):
    """Would break: weights of another run than the one that the table shows."""
    module, args, weights = enjoy.load_run(ROOT / "models" / name)
    envs, obs = module.make_envs(args, "gymnasium", 100, SEED)
    agent = enjoy.make_agent(module, args, weights, envs, obs)
    returns = module.evaluate(agent, envs, obs)
    summary = json.loads((ROOT / "models" / name / "summary.json").read_text())
    assert returns.mean() == pytest.approx(summary["eval_return_mean"])
