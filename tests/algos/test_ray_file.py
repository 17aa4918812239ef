"""Runners of ppo_continuous_ray.py: with any number of them, in whatever processes, it is ppo_continuous.py.

Ray is real in test_two_nodes and, from the command line, in test_files.py; elsewhere its actors are objects
of this process."""

import itertools
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
import toy_envs
from conftest import ROOT, equal, load, read_checkpoint, run_folder, scalars, spy, tiny, without_ray
from plainrl_tools.probing.actors import Died
from ray.cluster_utils import Cluster
from toy_envs import Counter

NAME, PARENT = "ppo_continuous_ray", "ppo_continuous"
STEPS = 8  # of a rollout


@pytest.fixture
def actors(monkeypatch):
    return without_ray(monkeypatch)


def batches(monkeypatch, algo) -> list[list]:
    """What each update of the runs to come gets: tensors of the valid rows, observations first."""
    kept = []

    def before(agent, optimizer, args, batch, *_):
        kept.append([tensor.detach().clone() for tensor in batch.values()])

    spy(monkeypatch, algo, "update", before)
    return kept


def curves(folder: Path) -> dict:
    return {tag: value for tag, value in scalars(run_folder(folder)).items() if tag != "charts/SPS"}


@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_any_number_of_runners_is_the_parent(tmp_path, actors, number):
    """4 environments, so that shares are uneven or more than there are; the run is resumed. Would break: a
    share in another place, seeds or draws of its own, weights or statistics of before."""
    agents, logs = [], []
    for name, flags in ((PARENT, {}), (NAME, {"num_runners": number})):
        algo, folder = load(name), tmp_path / name
        flags |= {"num_envs": 4, "norm_obs": True, "eval_frequency": 60}
        algo.train(tiny(algo, folder, total_timesteps=100, **flags))
        flags["resume"] = str(run_folder(folder))
        summary = algo.train(tiny(algo, folder, total_timesteps=160, **flags))
        agents.append(read_checkpoint(run_folder(folder))["agent"])
        logs.append(curves(folder) | {"last100": summary["train_return_last100"]})
    assert equal(*agents)
    assert logs[0] == logs[1] and len(logs[0]["charts/episodic_return"]) >= 6


def test_returns_without_the_rewards_of_reset_rows(tmp_path, monkeypatch, actors):
    """Would break: a return of dm_control, where a reset row repeats the last reward, that has it twice."""
    logs = []
    for name in (PARENT, NAME):
        algo, original = load(name), load(name).make_envs

        def loud(*args, original=original, **kwargs):
            envs, obs = original(*args, **kwargs)
            return toy_envs.LastReward(envs), obs

        monkeypatch.setattr(algo, "make_envs", loud)
        algo.train(tiny(algo, tmp_path / name, total_timesteps=100, num_envs=4))
        logs.append(curves(tmp_path / name))
    assert logs[0] == logs[1] and len(logs[0]["charts/episodic_return"]) >= 3


def test_a_runner_that_is_asked_twice(tmp_path, monkeypatch, actors):
    """Where its answer is lost on the way Ray asks again. Would break: a second rollout in place of the first, with the
    ends of episodes one rollout off."""
    kept = []
    for name in (PARENT, NAME):
        algo = load(name)
        if name == NAME:

            class Twice(algo.Runner):
                def collect(self, *job):
                    super().collect(*job)
                    return super().collect(*job)

            monkeypatch.setattr(algo, "Runner", Twice)
        kept.append(batches(monkeypatch, algo))
        flags = {"env_id": "toy_envs:Counter-v0", "num_envs": 4}
        algo.train(tiny(algo, tmp_path / name, total_timesteps=100, **flags))
    assert len(kept[0]) == len(kept[1]) >= 3
    for one, other in zip(*kept):
        assert all(torch.equal(*pair) for pair in zip(one, other))


# ---- a runner that dies

FLAGS = {"num_envs": 4, "num_runners": 2, "norm_obs": False, "gamma": 0.9}
SEED = 10_007  # of the first environment; Counter's id is the parity of its seed


def life(id: int):
    """(id, steps, episode) that an environment of Counter shows in each row; None is a reset row."""
    for episode in itertools.count():
        for step in range(Counter.LENGTHS[episode % 3] + id):
            yield id, step, episode
        yield None


def simulate(deaths: set[int], rollouts: int, gamma: float) -> list[dict]:
    """Of each rollout the valid rows, the returns of the episodes that end in it, the discounted returns so
    far; the second runner, with environments 2 and 3, died in some of them."""
    lives, running, steps, result = {}, {}, 0, []
    for number in range(rollouts):
        rows, returns, traces = [], [], []
        for i in range(4):
            if number == 0 or (i > 1 and number in deaths):
                lives[i], running[i] = life((SEED + steps + i) % 2), np.zeros(2)
            for row in itertools.islice(lives[i], STEPS):
                if row is None:
                    running[i] = np.zeros(2)
                    continue
                id, step, episode = row
                running[i] = running[i] * [1, gamma] + step + 1 + id
                rows.append(row)
                traces.append(running[i][1])
                if step + 1 == Counter.LENGTHS[episode % 3] + id:
                    returns.append(running[i][0])
        steps += len(rows)
        result.append({"rows": sorted(rows), "returns": returns, "traces": traces, "steps": steps})
    return result


def doom(algo, folder: Path, at: dict[int, int], die, note=None) -> None:
    """The second runner calls die() before a step: {how many died before it: step}. It leaves marks."""
    make_envs = algo.make_envs
    folder.mkdir()

    def doomed(args, backend, num_envs, seed, *rest):
        envs, obs = make_envs(args, backend, num_envs, seed, *rest)
        if num_envs == 2 and SEED <= seed < 2**30 and note:
            (folder / f"made-{seed}").write_text(note())
        if num_envs != 2 or not SEED < seed < 2**30:
            return envs, obs
        step, count = envs.step, itertools.count()
        before = len(list(folder.glob("died-*")))

        def watched(action):
            if next(count) == at.get(before):
                (folder / f"died-{before}").touch()
                die()
            return step(action)

        envs.step = watched
        return envs, obs

    algo.make_envs = doomed


def agrees(kept: list[list], run: Path, deaths: set[int], said: str) -> None:
    """Batches, curves, statistics of returns and what was said are those of a run with such deaths."""
    truth, logged = simulate(deaths, len(kept), FLAGS["gamma"]), scalars(run)
    for number, (batch, rollout) in enumerate(zip(kept, truth)):
        rows = sorted(tuple(row) for row in batch[0].int().tolist())
        assert rows == rollout["rows"], number
        steps, mean = logged["charts/episodic_return"][number]
        assert steps == rollout["steps"] and mean == pytest.approx(np.mean(rollout["returns"]))
    saved = read_checkpoint(run)
    traces = sum((rollout["traces"] for rollout in truth), [])
    assert saved["global_step"] == saved["agent"]["return_rms.count"] == len(traces)
    assert saved["agent"]["return_rms.mean"].item() == pytest.approx(np.mean(traces), rel=1e-5)
    lines = [line for line in said.splitlines() if re.match("step .* died", line)]
    before = [truth[number - 1]["steps"] for number in sorted(deaths - {0})]
    expected = "step {}: a runner died; 2 environments start again"
    assert lines == [expected.format(steps) for steps in before]


def die_here():
    raise Died


@pytest.mark.parametrize(
    ("at", "deaths"),
    [
        ({}, set()),
        ({0: 12}, {1}),
        ({0: 8}, {1}),  # after its first rollout was learned from
        ({0: 3}, {0}),  # with the same seeds, and no word
        ({0: 12, 1: 2, 2: 5}, {1}),  # and so do two that were to replace it
        ({0: 12, 1: 9}, {1, 2}),
    ],
    ids=str,
)
def test_a_runner_that_dies(tmp_path, monkeypatch, capsys, actors, at, deaths):
    """Every rollout has its 4 x 8 rows. Would break: rows of the dead one counted or learned from, a first
    row taken for a reset, returns or discounted returns that go on from those that were lost."""
    algo = load(NAME)
    kept = batches(monkeypatch, algo)
    doom(algo, tmp_path / "marks", at, die_here, str)
    algo.train(tiny(algo, tmp_path, total_timesteps=70, **FLAGS))
    assert len(kept) == 3 and len(list((tmp_path / "marks").glob("died-*"))) == len(at)
    agrees(kept, run_folder(tmp_path), deaths, capsys.readouterr().out)
    steps = [0, *(rollout["steps"] for rollout in simulate(deaths, 3, 0.9))]
    seeds = {SEED} | {SEED + 2 + steps[number] for number in deaths | {0}}
    assert {path.name for path in (tmp_path / "marks").glob("made-*")} == {
        f"made-{s}" for s in seeds
    }


# ---- Ray


def refused(tmp_path, **flags) -> str:
    """The one line that the run ends in before anything is made."""
    algo = load(NAME)
    with pytest.raises(SystemExit) as stopped:
        algo.train(tiny(algo, tmp_path, **flags))
    assert not list(tmp_path.iterdir())
    message = str(stopped.value)
    assert len(message.splitlines()) == 1
    return message


def test_missing_ray(tmp_path, monkeypatch):
    """Would break: a traceback in place of what to install."""
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install ray" in refused(tmp_path)


@pytest.mark.parametrize(("address", "cpus"), [("local", 4), ("10.0.0.1:6379", None)])
def test_where_ray_runs(tmp_path, actors, address, cpus):
    """Would break: runners that wait for CPUs that this machine does not have, CPUs demanded of a cluster,
    which Ray refuses; a cluster that is not there in a traceback."""

    def init(place, **options):
        assert (place, options.get("num_cpus")) == (address, cpus)
        raise ConnectionError("nobody is there")

    actors.init = init
    flags = {"num_envs": 8, "num_runners": 4, "ray": address}
    assert refused(tmp_path, **flags).startswith(f"--ray {address}: ConnectionError('nobody is")


def test_too_few_cpus(tmp_path, actors):
    """Would break: a run that waits for ever, without a word."""
    actors.cluster_resources = lambda: {"CPU": 3.0}
    assert "--num-runners 4 requires 4 CPUs" in refused(tmp_path, num_envs=8, num_runners=4)


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with a CPU each, whose actors find toy_envs."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    folders = [Path(toy_envs.__file__).parent, Path(__file__).parent, ROOT / "scripts"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        made.add_node(num_cpus=1)
        yield made.address
    finally:
        ray.shutdown()
        made.shutdown()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def where() -> str:
    return f"{ray.get_runtime_context().get_node_id()} {torch.get_num_threads()}"


@pytest.mark.slow
def test_two_nodes(tmp_path, monkeypatch, capsys, cluster):
    """On a cluster: what the parent learns from, then a runner killed, then SIGTERM. Would break: weights,
    draws or rows that go another way through Ray than here; a signal that Ray takes for itself."""
    parent, algo, stop = load(PARENT), load(NAME), []
    flags = FLAGS | {"env_id": "toy_envs:Counter-v0"}
    own = {key: value for key, value in flags.items() if key != "num_runners"}
    rollouts = batches(monkeypatch, parent)
    parent.train(tiny(parent, tmp_path / PARENT, total_timesteps=50, **own))

    def in_the_fourth(*_):
        if len(kept) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.append(number))
    kept = batches(monkeypatch, algo)
    spy(monkeypatch, algo, "update", in_the_fourth)
    doom(algo, tmp_path / "marks", {0: 20}, killed, where)
    ray.cloudpickle.register_pickle_by_value(algo)
    with pytest.raises(SystemExit) as stopped:
        args = tiny(algo, tmp_path, total_timesteps=10**6, ray=cluster, **flags)
        algo.train(args, stop)
    assert stopped.value.code == 128 + 15
    for one, other in zip(rollouts, kept[:2], strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other))
    agrees(kept, run_folder(tmp_path), {2}, capsys.readouterr().out)
    nodes = [file.read_text().split() for file in (tmp_path / "marks").glob("made-*")]
    assert len(nodes) == 3 and len({node for node, _ in nodes}) == 2
    assert {threads for _, threads in nodes} == {"1"}


def test_videos_are_checked_before_training(tmp_path, actors, monkeypatch):
    """Would break: hours of training, and then no video."""
    algo = load(NAME)
    monkeypatch.setattr(algo, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install moviepy"):
        algo.train(tiny(algo, tmp_path, capture_video=True))
