"""docs/pitfalls.md: each test of the page fails with the wrong line and passes with the right one, and each mistake is
reported by the check that the page names."""

import copy
import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import ROOT, script
from plainrl_tools import edits
from test_mutations import findings

PAGE = (ROOT / "docs/pitfalls.md").read_text()
ENTRIES = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.DOTALL))
COUNT = re.search(r"```python\n(class Count.*?)```", PAGE, re.DOTALL)[1]


def lines(title: str, sign: str) -> str:
    """The wrong (-) or right (+) lines of an entry, with the unchanged lines around them."""
    (diff,) = re.findall(r"```diff\n(.*?)```", ENTRIES[title], re.DOTALL)
    kept = [line[1:] for line in diff.splitlines() if line[0] in f"{sign} "]
    indent = len(kept[0]) - len(kept[0].lstrip())
    return "\n".join(line[indent:] for line in kept)


def check_of(title: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", ENTRIES[title], re.DOTALL)
    return code


def execute(code: str, names: dict) -> dict:
    names |= {"np": np, "torch": torch, "gym": gym}
    exec(compile(code, "docs/pitfalls.md", "exec"), names)
    return names


def roll_out(code: str = "", before: str = "", mode: str = "NEXT_STEP", num_steps: int = 12):
    """A rollout of two Count environments. `before` runs before each step, `code` after it."""
    env = execute(COUNT, {})["Count"]
    mode = gym.vector.AutoresetMode[mode]
    envs = gym.vector.SyncVectorEnv([env, env], autoreset_mode=mode)
    shape = (num_steps, 2)
    names = {name: np.zeros(shape) for name in ("terminateds", "dones", "rewards")}
    names |= {"obs": np.zeros(shape), "valid": np.zeros(shape, bool)}
    names["true_next_obs"] = np.zeros(shape)
    rows = {"done": np.zeros(2, bool), "next_obs": envs.reset()[0]}
    for t in range(num_steps):
        names["obs"][t] = rows["next_obs"][:, 0]
        rows["valid"] = ~rows["done"]
        execute(before, rows)
        names["valid"][t] = rows["valid"]
        previous_done = rows["done"]
        next_obs, reward, terminated, truncated, info = envs.step(np.zeros(2, int))
        done = terminated | truncated
        names["dones"][t] = done
        names["rewards"][t] = reward
        rows |= {"next_obs": next_obs, "done": done, "info": info, "true_next_obs": next_obs}
        rows |= {"t": t, "terminated": terminated, "truncated": truncated}
        rows |= {"previous_done": previous_done, "dones": names["dones"]}
        rows["terminateds"] = names["terminateds"]
        execute(code, rows)
        names["true_next_obs"][t] = rows["true_next_obs"][:, 0]
    return names


def bootstrap(code):
    return roll_out(code, mode="SAME_STEP", num_steps=10)


def autoreset(code):
    return roll_out(before=code)


def gae(code):
    names = roll_out()
    advantages = np.zeros((13, 2))
    for t in reversed(range(12)):
        row = {"t": t, "advantages": advantages, "deltas": names["rewards"], "gamma": 1}
        execute(code, row | {"gae_lambda": 1, "dones": names["dones"]})
    return names | {"advantages": advantages[:-1]}


def vector_info(code):
    envs = gym.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=1)
    envs.action_space.seed(1)
    names = {"returns": [], "num_episodes": 0}
    for _ in range(200):
        _, _, terminated, truncated, names["info"] = envs.step(envs.action_space.sample())
        names["num_episodes"] += (terminated | truncated).sum()
        if "episode" in names["info"]:
            execute(code, names)
    wrong, right = np.mean(names["returns"]) < 6, np.mean(names["returns"]) > 15
    assert wrong != right and names["num_episodes"] > 50
    return names


def broadcast(code):
    logprob = torch.randn(8)
    names = {"logprob": logprob, "old_logprob": logprob[:, None], "n": 8}
    return execute(code, names | {"advantage": torch.randn(8)})


def stale(code):
    policy = torch.distributions.Categorical(logits=torch.randn(64, 4))
    names = execute(code, {"policy": policy})
    return {"ratio": (policy.log_prob(names["action"]) - names["logprob"]).exp()}


def value_clip(code):
    value = torch.randn(64)
    names = {"value": value, "old_value": value.clone(), "target": torch.randn(64)}
    return execute(code, names | {"clip_coef": 0.2})


def squash(code):
    policy = torch.distributions.Normal(torch.tensor([0.3]), torch.tensor([0.8]))

    def logprob_of(u):
        return execute(code, {"policy": policy, "u": u.double()})["logprob"]

    return {"logprob_of": logprob_of}


def optimiser(code):
    names = {name: [torch.nn.Parameter(torch.zeros(2))] for name in ("actor", "critic")}
    return execute(code, names)


def epsilon_of_rmsprop(code):
    parameter = torch.nn.Parameter(torch.zeros(100))
    names = execute(code, {"parameters": [parameter]})
    for _ in range(500):
        parameter.grad = 1e-4 * torch.randn(100)
        names["optimizer"].step()
    return names


def wrapper(code):
    def scaled(env):
        return gym.wrappers.TransformObservation(env, lambda obs: 10 * obs, None)

    return execute(code, {"scaled": scaled, "train_env": scaled(gym.make("CartPole-v1"))})


def statistics(code):
    train_env = gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1"))
    train_env.reset(seed=1)
    for _ in range(50):
        train_env.step(train_env.action_space.sample())

    def normalize(env, obs):
        return (obs - env.obs_rms.mean) / np.sqrt(env.obs_rms.var + 1e-8)

    names = execute(code, {"train_env": train_env})
    mean = train_env.obs_rms.mean.copy()
    names["eval_env"].reset(seed=2)
    if names["eval_env"].obs_rms is train_env.obs_rms:
        assert np.array_equal(mean, train_env.obs_rms.mean), "the evaluation has changed it"
    return names | {"normalize": normalize, "obs": np.ones(3)}


def seeds(code):
    envs = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    return execute(code, {"envs": envs, "seed": 3, "num_envs": 4})


def frame_skip(code):
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    names = execute(code, {})
    names["env"].reset(seed=1)
    return names


def resets(code):
    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    obs, _ = envs.reset(seed=1)
    last, *_ = envs.step(np.zeros(2, int))
    in_the_loop = "in the loop" in code
    names = execute(code, {"envs": envs, "seed": 1}) if in_the_loop else {"obs": last}
    return {"first_obs_of_rollout": names["obs"], "last_obs_of_rollout_before": last}


def one_draw(code):
    torch.manual_seed(1)
    return execute(code, {"epsilon": 0.5, "num_envs": 64})


def target_network(code):
    network = torch.nn.Linear(1, 1)
    names = {"network": network, "target_network": copy.deepcopy(network), "global_step": 0}
    names |= {"num_target_updates": 0, "done": np.zeros(16, bool)}
    for step in range(500):
        names["step_before"] = names["global_step"]
        names["global_step"] += 15 + step % 2
        names["done"][0] = step % 7 == 0
        execute(code, names)
    return names


def replay(code):
    return execute(code, {"size": 100})


def seeds_of_runs(code):
    return execute(code, {"runs": list(range(10))})


def few_updates(code):
    return execute(code, {})


SITUATIONS = {
    "Truncation is treated as termination": roll_out,
    "The value of the next episode's first observation": bootstrap,
    "Autoreset steps are trained on": autoreset,
    "GAE runs on into the next episode": gae,
    "`done` is stored late, or cleared first": roll_out,
    "Vector `info` is read like a list": vector_info,
    "(n,) minus (n, 1) is (n, n)": broadcast,
    "The ratio does not start at 1": stale,
    "The value is clipped around the return": value_clip,
    "The entropy of a squashed action": squash,
    "Too few updates": few_updates,
    "A critic that learns too slowly": optimiser,
    "RMSprop's epsilon is larger than the gradients": epsilon_of_rmsprop,
    "A wrapper in training or evaluation only": wrapper,
    "An evaluation with fresh statistics": statistics,
    "All environments have one seed": seeds,
    "Frames are skipped twice, or never": frame_skip,
    "All environments are reset before each rollout": resets,
    "One draw of epsilon for all environments": one_draw,
    "A target network that is never updated": target_network,
    "Stacks of float32 in the replay buffer": replay,
    "Three seeds": seeds_of_runs,
}


def test_all_entries():
    """Would break: an entry that has no test."""
    assert list(SITUATIONS) == list(ENTRIES)


@pytest.mark.parametrize("title", SITUATIONS)
def test_of_the_page(title):
    """Would break: an assertion of the page that misses its mistake, or that fails in right code."""
    situation = SITUATIONS[title]
    execute(check_of(title), situation(lines(title, "+")))
    names = situation(lines(title, "-"))
    with pytest.raises(AssertionError):
        execute(check_of(title), names)


# The mistakes of an entry: names of mutants.txt or of a study's patches.txt, or (file, old, new).
OF_INFO = 'episodes.extend(zip(episode["r"][done], episode["l"][done]))'
MEANS = 'episodes.append((episode["r"].mean(), episode["l"].mean()))'
MISTAKES = {
    "Truncation is treated as termination": ["timeout-terminal", "vector-dqn-timeout-terminal"],
    "The value of the next episode's first observation": [
        "next-episode-obs",
        "vector-dqn-next-episode-obs",
    ],
    "Autoreset steps are trained on": ["reset-rows-trained", "count-reset-rows"],
    "GAE runs on into the next episode": ["gae-no-mask", "a2c-no-mask"],
    "`done` is stored late, or cleared first": ["done-late", "done-cleared"],
    "Vector `info` is read like a list": [("ppo", OF_INFO, MEANS)],
    "(n,) minus (n, 1) is (n, n)": ["ratio-matrix"],
    "The ratio does not start at 1": ["stale-logprob"],
    "The value is clipped around the return": ["vclip-target"],
    "The entropy of a squashed action": [],
    "Too few updates": ["full-batch"],
    "A critic that learns too slowly": ["critic-lr"],
    "RMSprop's epsilon is larger than the gradients": ["published_rmsprop"],
    "A wrapper in training or evaluation only": ["vector-dqn-wrapper-in-evaluation-only"],
    "An evaluation with fresh statistics": ["fresh_statistics", "rms-in-eval"],
    "All environments have one seed": ["pixels-same-seeds"],
    "Frames are skipped twice, or never": ["ppo-atari-skip-twice", "ppo-atari-no-frame-skip"],
    "All environments are reset before each rollout": ["reset-every-rollout"],
    "One draw of epsilon for all environments": ["vector-dqn-one-draw"],
    "A target network that is never updated": ["vector-dqn-target-at-episode-ends"],
    "Stacks of float32 in the replay buffer": [],
    "Three seeds": [],
}
PROBED = {  # mistakes that are not in mutants.txt: the check that finds them, and its verdict
    OF_INFO: ("logging", "broken"),
    "fresh_statistics": ("evaluation-returns", "differs"),
    "published_rmsprop": ("optimiser", "differs"),
}


def test_computation_of_the_broadcast(capsys):
    """Would break: a page whose numbers the program that it shows does not print."""
    page = (ROOT / "docs/broadcast.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"```\n(\(2048,\).*?)```", page, re.DOTALL)
    execute(code, {})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("title", MISTAKES)
def test_named_checks(title):
    """Would break: an entry that names another check than the one that finds its mistake."""
    mutants = {mutant["name"]: mutant["check"] for mutant in edits.read(edits.MUTANTS)}
    found = set()
    for mistake in MISTAKES[title]:
        name = mistake if isinstance(mistake, str) else mistake[1]
        found.add(mutants[name] if name in mutants else PROBED[name][0])
    (bullet,) = re.findall(r"^- \*\*Probe\*\*: (.*?)(?=^- |^$)", ENTRIES[title], re.M | re.DOTALL)
    known = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs/probe-checks.md").read_text(), re.M))
    assert {word for word in re.findall(r"`([\w-]+)`", bullet) if word in known} == found
    assert found or bullet.startswith("none")


@pytest.mark.mutations
@pytest.mark.parametrize("mistake", PROBED)
def test_probe_finds(mistake, tmp_path):
    """Would break: a patch of the page's runs that is another mistake than the page says."""
    file = tmp_path / "changed.py"
    if mistake == OF_INFO:
        text = script("ppo").read_text()
        assert text.count(OF_INFO) == 1
        file.write_text(text.replace(OF_INFO, MEANS))
    else:
        edits.write_patched(mistake, tmp_path)
        file = tmp_path / f"{mistake}.py"
    check, verdict = PROBED[mistake]
    result = findings(file, [check])[check]
    assert result.verdict == verdict, result
