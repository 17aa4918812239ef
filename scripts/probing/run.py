"""Exact checks of what every file does: steps of the optimiser, log, environments, evaluation, checkpoint."""

import contextlib
import inspect
import itertools
import math
import random
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch

from probing.subject import (
    NUM_ACTIONS,
    Subject,
    Trace,
    check,
    close,
    largest,
    memory,
    minibatch,
    scores,
)


@check("update", "the gradient is not clipped to --max-grad-norm", of="clips")
def gradient_clipping(subject: Subject):
    """With --max-grad-norm 0.001 no step sees a longer gradient."""
    norms = [
        norm for record in Trace(subject, max_grad_norm=1e-3).updates for norm in record["norms"]
    ]
    return (
        f"largest norm {max(norms, default=math.nan):.1e}",
        "1.0e-03",
        bool(norms) and max(norms) < 1.01e-3,
    )


@check(
    "update",
    "gradients pile up from one minibatch to the next: zero_grad is missing or in the wrong place",
)
def fresh_gradients(subject: Subject):
    """With a learning rate of 0 and one minibatch of everything, every step sees the same gradient."""
    module, norms = subject.load(), []
    whole = {"num_envs": 4, "num_steps": 16, "num_minibatches": 1, "batch_size": 64}
    args = subject.args(module, update_epochs=4, max_grad_norm=1e9, **whole)
    agent, batch = minibatch(subject, module, args, 64)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.0)
    parameters = list(agent.parameters())
    optimizer.register_step_pre_hook(
        lambda *_: norms.append(float(sum(p.grad.norm() ** 2 for p in parameters) ** 0.5))
    )
    given = {"agent": agent, "target_agent": agent, "optimizer": optimizer, "args": args}
    if (
        batch.pop("next_values", None) is not None
    ):  # Q-learning: its update asks the target network for them
        batch = {
            name: torch.cat([tensor] * 4) for name, tensor in batch.items()
        }  # and takes many batches at once
    given |= {"batch": tuple(batch.values()), "valid_rows": torch.arange(64)}
    wanted = inspect.signature(module.update).parameters
    for _ in range(
        1 if "ratio" in subject.kinds else 4
    ):  # an update is one step where there are no epochs
        module.update(**{name: given[name] for name in wanted if name in given})
    measured = ", ".join(f"{norm:.3g}" for norm in norms)
    return f"norms {measured}", "all the same", max(norms) / min(norms) < 1.01


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype):
    """What uint8 tensors become when they are divided."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@check(
    "Agent", "a part of the log-probability, the entropy or the value is detached from the gradient"
)
def derivatives(subject: Subject):
    """Of the mean log-probability and of the value by every parameter: autograd against differences, in float64, of
    two sizes, since one of them may step over the kink of a ReLU."""
    module, worst = subject.load(), 0.0
    agent = subject.agent(module, subject.args(module)).double()
    rows = 4 if "pixels" in subject.kinds else 32
    x, action = subject.observations(rows), subject.actions(rows)
    x = x.double() if x.is_floating_point() else x
    action = action.double() if "continuous" in subject.kinds else action

    def outputs() -> torch.Tensor:
        # a network may cast its last layers to float32, or divide bytes by 255
        with patch.object(torch.Tensor, "float", torch.Tensor.double), default_dtype(torch.float64):
            if "q-learning" in subject.kinds:
                return (agent(x) * torch.linspace(0.5, 1.5, NUM_ACTIONS)).mean(0)
            if hasattr(agent, "get_action_and_value"):  # the value that the loss gets
                _, logprob, _, value = agent.get_action_and_value(x, action)
            else:
                logprob, value = subject.act(agent, x, action)[1], subject.value(agent, x)
            return torch.stack([logprob.mean(), value.mean()])

    for parameter in agent.parameters():
        direction = torch.randn_like(parameter)
        direction /= direction.norm()
        graph = outputs()
        ours = [
            torch.autograd.grad(output, parameter, retain_graph=True, allow_unused=True)[0]
            for output in graph
        ]
        ours = [
            0.0 if gradient is None else float((gradient * direction).sum()) for gradient in ours
        ]
        errors = []
        for size in (1e-6, 1e-8):
            with torch.no_grad():
                parameter += size * direction
                above = outputs()
                parameter -= 2 * size * direction
                errors.append(largest(ours, (above - outputs()) / (2 * size)))
                parameter += size * direction
        worst = max(worst, min(errors))
    return close(worst, 1e-4)


@check("Agent", "a parameter is outside the loss or outside the optimiser")
def gradients_reach_everything(subject: Subject):
    """Every parameter has a gradient, and has changed by the end of the run."""
    trace = subject.trace
    first, last = (dict(agent.named_parameters()) for agent in (trace.first, trace.after))
    missing = [
        name for name in first if name not in trace.learned or torch.equal(first[name], last[name])
    ]
    return (
        "not trained: " + ", ".join(sorted(missing)) if missing else "all trained",
        "all trained",
        not missing,
    )


@check(
    "train",
    "the learning rate does not fall linearly to 0, or not every parameter has it",
    of="policy",
)
def annealing(subject: Subject):
    """The learning rate of every parameter in each update: linear to 0, or constant with --no-anneal-lr."""
    trace, args, worst = subject.trace, subject.trace.args, 0.0
    for record, step in zip(trace.updates, [0, *trace.steps]):
        right = args.learning_rate * (1 - step / args.total_timesteps)
        worst = max(worst, *(abs(lr / right - 1) for lr in record["lrs"]))
    constant = {lr for record in Trace(subject, anneal_lr=False).updates for lr in record["lrs"]}
    passed = worst < 1e-3 and constant == {args.learning_rate}
    hint = None
    if any(len(set(record["lrs"])) > 1 for record in trace.updates):
        hint = "parameters have different learning rates; one that is far too small never learns"
    return (
        f"error {worst:.1e}; without --anneal-lr {sorted(constant)}",
        f"0; [{args.learning_rate}]",
        passed,
        hint,
    )


@check(
    "train",
    "the optimiser is made anew in between, decays the weights, or is not the one in the checkpoint",
)
def optimiser(subject: Subject):
    """What it remembers goes on from update to update and stands in the checkpoint; it has no weight decay, and the
    parameters of the trained network and no others."""
    trace, wrong = subject.trace, []
    for before, record in itertools.pairwise(trace.updates):
        wrong += ["made anew"] * (record["memory"][0] != before["memory"][1])
    wrong += ["weight decay"] * any(any(record["decay"]) for record in trace.updates)
    wrong += ["other parameters"] * any(record["stray"] for record in trace.updates)
    saved = (
        torch.load(trace.run_dir / "checkpoint.pt", weights_only=True)
        .get("optimizer", {})
        .get("state", {})
    )
    ours, theirs = memory(saved), trace.updates[-1]["memory"][1]
    wrong += ["another in the checkpoint"] * (ours != theirs)
    return ", ".join(dict.fromkeys(wrong)) or "one, kept", "one, kept", not wrong


@check("train", "a logged loss is not the mean over the minibatches of what its name says")
def logged_losses(subject: Subject):
    """losses/*, charts/learning_rate and charts/epsilon, worked out again from the minibatches since the last line."""
    trace, errors, pending = long_trace(subject), {}, []
    finite = {name: dict(points) for name, points in trace.scalars.items()}
    updates = iter(trace.updates)
    record = next(updates)
    for k, step in enumerate(trace.steps):
        while (
            record
            and record.get("tick", 0) == k + 1
            or record
            and "agent" in record
            and record is trace.updates[k]
        ):
            pending.append(losses_of(subject, trace, record))
            record = next(updates, None)
        if not pending or step not in finite["charts/SPS"]:
            continue
        right = {name: np.mean([losses[name] for losses in pending]) for name in pending[0]}
        right |= {
            name: pending[-1][name]
            for name in pending[0]
            if "explained" in name or name.startswith("charts")
        }
        if "q-learning" in subject.kinds:
            right["charts/epsilon"] = trace.epsilon(k)
        for name, value in right.items():
            if name in finite:  # what a file does not log cannot be wrong
                ours = finite[name].get(step, math.inf)
                errors[name] = max(errors.get(name, 0.0), abs(ours - value) / max(0.01, abs(value)))
        pending = []
    bad = sorted(name for name, error in errors.items() if not error < 0.01)
    return "wrong: " + ", ".join(bad) if bad else "all agree", "all agree", bool(errors) and not bad


def long_trace(subject: Subject) -> Trace:
    """A run that logs more than once: files that update often write a line every 2000 steps."""
    flags = {"norm_adv": False, "learning_rate": 0.02, "max_grad_norm": 100.0, "clip_vloss": False}
    if "ratio" not in subject.kinds:
        flags |= {"total_timesteps": 2300, "train_frequency": 24, "learning_rate": 1e-3}
        flags |= (
            {"num_envs": 48, "buffer_size": 960, "learning_starts": 192}
            if "q-learning" in subject.kinds
            else {}
        )
    return Trace(subject, **flags)


def losses_of(subject: Subject, trace: Trace, record: dict) -> dict[str, float]:
    """What an update should log, from its minibatches, with advantages that are not standardised."""
    lists, clip_coef = {}, getattr(trace.args, "clip_coef", 0.0)
    for mb in record["minibatches"]:
        mb = {
            name: tensor.double() if torch.is_tensor(tensor) else tensor
            for name, tensor in mb.items()
            if name != "x"
        }
        if "q-learning" in subject.kinds:
            losses = {
                "td_loss": mb["loss"],
                "q_values": mb["values"].gather(1, mb["action"].long()[:, None]).mean(),
            }
        elif "ratio" in subject.kinds:
            logratio, advantage = mb["logprob"] - mb["old_logprob"], mb["advantage"]
            ratio = logratio.exp()
            clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
            losses = {"policy_loss": -torch.min(ratio * advantage, clipped * advantage).mean()}
            losses |= {"approx_kl": (ratio - 1 - logratio).mean()}
            losses |= {"clipfrac": ((ratio - 1).abs() > clip_coef).double().mean()}
        else:
            valid = mb.get("valid", torch.ones(len(mb["target"]))) > 0
            mb = {name: tensor[valid] for name, tensor in mb.items() if torch.is_tensor(tensor)}
            losses = {"policy_loss": -(mb["logprob"] * (mb["target"] - mb["value"])).mean()}
        if "policy" in subject.kinds:
            losses |= {
                "value_loss": 0.5 * ((mb["value"] - mb["target"]) ** 2).mean(),
                "entropy": mb["entropy"].mean(),
            }
        for name, value in losses.items():
            lists.setdefault(name, []).append(float(value))
    means = {f"losses/{name}": float(np.mean(values)) for name, values in lists.items()}
    if "policy" in subject.kinds:
        target = record["batch"]["target"]
        old_value = record["batch"].get(
            "old_value", record["minibatches"][0]["value"][: len(target)]
        )
        if len(record["minibatches"]) == 1 and "valid" in record["minibatches"][0]:
            old_value = record["minibatches"][0]["value"][record["minibatches"][0]["valid"] > 0]
        means["losses/explained_variance"] = 1 - float((target - old_value).var() / target.var())
        means["charts/learning_rate"] = record["lrs"][0]
    return means


@check(
    "update",
    "--target-kl must end the epochs after the first whose last minibatch has a larger approximate KL",
    of="ratio",
)
def target_kl(subject: Subject):
    """With --target-kl 0.0001 and 5 epochs: the number of minibatches of every update."""
    trace, wrong, cut = Trace(subject, target_kl=1e-4, update_epochs=5), 0, 0
    per_epoch = trace.args.num_minibatches
    for record in trace.updates:
        parts = record["minibatches"]
        for epoch in range(1, 6):
            last = parts[min(epoch * per_epoch, len(parts)) - 1]
            logratio = last["logprob"].double() - last["old_logprob"].double()
            over, whole = (
                float((logratio.exp() - 1 - logratio).mean()) - 1e-4,
                len(parts) == epoch * per_epoch,
            )
            if over > 0 if abs(over) > 1e-6 else whole:  # so near to the limit, rounding decides
                break
        wrong, cut = wrong + (len(parts) != epoch * per_epoch), cut + (epoch < 5)
    return (
        f"{wrong} of {len(trace.updates)} updates wrong, {cut} cut short",
        "0 wrong, some cut",
        wrong == 0 < cut,
    )


@check(
    "train",
    "evaluations on the way (--eval-frequency) disturb the training, or play other episodes each time",
)
def evaluation_on_the_way(subject: Subject):
    """Same weights in the end as without them, same seeds each time, figures as logged and saved."""
    trace, plain, wrong = (
        Trace(subject, eval_frequency=subject.trace.args.total_timesteps * 3 // 10),
        subject.trace,
        [],
    )
    seeds = {
        tuple(env.seeds[0] for env in envs if env.seeds)
        for envs, _ in trace.envs[-len(trace.evaluations) :]
    }
    if len(trace.evaluations) < 3 or len(seeds) != 1:
        wrong.append("seeds, or number of evaluations")
    ours, theirs = (run.after.state_dict() for run in (trace, plain))
    if not all(torch.equal(ours[name], theirs[name]) for name in ours):
        wrong.append("training is disturbed")
    last, summary = trace.evaluations[-1][2], trace.summary
    if len(last) != trace.args.eval_episodes:
        wrong.append(f"{len(last)} episodes for {trace.args.eval_episodes}")
    logged = [value for _, value in trace.scalars.get("eval/episodic_return", [])]
    saved = summary["eval_return_mean"], summary["eval_return_std"]
    errors = (
        largest(logged, [np.mean(e[2]) for e in trace.evaluations]),
        largest(saved, (np.mean(last), np.std(last))),
    )
    wrong += ["logged or saved figures"] * (max(errors) > 1e-3)
    return "; ".join(wrong) or "as it should be", "as it should be", not wrong


@check(
    "train",
    "best.pt is not the best of the evaluated weights, or judged by the episodes that chose it",
    of="best",
)
def best_model(subject: Subject):
    """The weights in best.pt are those of the best of ten evaluations, the first where two are equal; its score in the
    summary is of other seeds, and of those weights."""
    trace, wrong = (
        Trace(subject, eval_frequency=subject.trace.args.total_timesteps // 10, learning_rate=0.02),
        [],
    )
    means = [np.mean(returns) for _, _, returns in trace.evaluations]
    chosen = trace.evaluations[int(np.argmax(means))][1].state_dict()
    (judged, _, returns), envs = trace.best
    saved = torch.load(trace.run_dir / "best.pt", weights_only=True)["agent"]
    for name, weights in (("best.pt", saved), ("what is judged", judged)):
        wrong += [f"{name} is another evaluation's"] * any(
            not torch.equal(chosen[key], weights[key]) for key in chosen
        )
    seeds = [{env.seeds[0] for env in group} for group in (envs, trace.eval_envs, trace.train_envs)]
    wrong += ["seeds that have been seen"] * bool(seeds[0] & (seeds[1] | seeds[2]))
    wrong += ["the logged score"] * (trace.summary["best_returns"] != returns)
    return (
        ", ".join(wrong) or "the best of ten",
        "the best of ten",
        not wrong and len(set(means)) > 3,
    )


@check("train", "--resume forgets something, or starts again in the environments of the beginning")
def resuming(subject: Subject):
    """A finished run goes on: weights, statistics, optimiser, generator, target network and, where it is saved,
    the replay, in new environments."""
    first, wrong = Trace(subject, save_replay=True), []
    saved = torch.load(first.run_dir / "checkpoint.pt", weights_only=True)
    flags = {"resume": str(first.run_dir), "runs_dir": first.args.runs_dir, "save_replay": True}
    after = Trace(subject, total_timesteps=first.args.total_timesteps * 8 // 5, **flags)
    record, ended = after.updates[0], first.evaluations[-1][1]
    pairs = zip(after.first.parameters(), ended.parameters())
    wrong += ["weights"] * (not all(torch.equal(a, b) for a, b in pairs))
    start, end = (dict(agent.named_buffers()) for agent in (after.first, ended))
    same = all(torch.equal(start[name], end[name]) for name in start if name.startswith("obs_rms"))
    grown = "return_rms.count" not in start or start["return_rms.count"] > end["return_rms.count"]
    wrong += ["statistics"] * (not same or not bool(grown))
    wrong += ["optimiser"] * (record["memory"][0] != memory(saved["optimizer"]["state"]))
    states = [state for state in saved["random_states"] if torch.is_tensor(state)]
    wrong += ["generator"] * (not any(torch.equal(after.generator, state) for state in states))
    seeds = [{env.seeds[0] for env in trace.train_envs if env.seeds} for trace in (first, after)]
    wrong += ["the same environments again"] * bool(seeds[0] & seeds[1])
    wrong += ["steps"] * (
        after.summary["global_step"] != first.summary["global_step"] + after.steps[-1]
    )
    if "q-learning" in subject.kinds:
        wrong += ["target network"] * (not torch.equal(after.ticks[0][1], first.ticks[-1][1]))
        saves = hasattr(first.args, "save_replay")
        wrong += ["replay"] * (
            saves and record["tick"] > 3
        )  # a replay that is still there learns at once
        known = {
            x.tobytes()
            for trace in (first, after)
            for truth in trace.truth
            for x in truth["obs"][0]
        }
        drawn = [x.numpy().tobytes() for update in after.updates for x in update["batch"]["x"]]
        wrong += ["rows of the replay"] * (not all(x in known for x in drawn))
        share = after.args.exploration_fraction * after.args.total_timesteps
        right = min(first.summary["global_step"] / share, 1) * (
            after.args.end_e - after.args.start_e
        )
        wrong += ["epsilon"] * (abs(after.epsilons[0] - after.args.start_e - right) > 1e-3)
    return "lost: " + ", ".join(wrong) if wrong else "all kept", "all kept", not wrong


@check(
    "train",
    "global_step, the logged returns or lengths are not what the environments paid and counted",
)
def logging(subject: Subject):
    """Against the environments' protocols: raw rewards, reset rows count nowhere, an episode's end is included."""
    trace = subject.trace if "ratio" in subject.kinds else long_trace(subject)
    episodes, pending, waiting, wrong = [], [], 0, []
    longest = 0 if "ratio" in subject.kinds else 2000  # steps until an episode must be logged
    totals = np.zeros((2, trace.args.num_envs))
    logged = {
        name: trace.scalars.get(f"charts/episodic_{name}", []) for name in ("return", "length")
    }
    at = {name: dict(points) for name, points in logged.items()}
    for truth, steps in zip(trace.truth, trace.steps):
        for t, valid in enumerate(truth["valid"]):
            totals += np.stack([truth["reward"][t] * valid, valid])
            for n in np.flatnonzero(np.maximum(truth["terminated"][t], truth["truncated"][t])):
                pending.append(tuple(totals[:, n]))
                totals[:, n] = 0
        waiting += int(truth["valid"].sum())
        last = steps == trace.steps[-1]
        if pending and (
            any(steps in at[name] for name in at) or waiting > longest + trace.args.num_envs or last
        ):
            for i, name in enumerate(("return", "length")):
                if not abs(at[name].get(steps, math.nan) - np.mean(pending, axis=0)[i]) < 1e-3:
                    wrong.append(f"{name} at step {steps}")
            episodes, pending, waiting = episodes + pending, [], 0
    if trace.summary["global_step"] != trace.steps[-1]:
        wrong.append(f"global_step {trace.summary['global_step']} for {trace.steps[-1]}")
    last100 = np.mean(episodes[-100:], axis=0)[0]
    if not abs(trace.summary["train_return_last100"] - last100) < 1e-3:
        wrong.append("train_return_last100")
    return "wrong: " + ", ".join(wrong[:3]) if wrong else "all agree", "all agree", not wrong


@check(
    "train",
    "environments are reset before every rollout, so that episodes are cut without a trace",
    of="bootstrap",
)
def no_resets_between_rollouts(subject: Subject):
    """An environment is reset once at the start, and after that only where an episode has ended."""
    trace, cut = subject.trace, 0
    for env in trace.train_envs:
        for before, row in itertools.pairwise(env.protocol):
            cut += row["reset"] and not (before["terminated"] or before["truncated"])
    return f"{cut} episodes cut", "0", cut == 0


@check("make_envs", "environments share a seed, or evaluation plays with the seeds of training")
def seeds(subject: Subject):
    """Seeds of the environments in training and evaluation, and with another --seed, have none in common."""
    trace = subject.trace
    train, test = (
        [env.seeds[0] if env.seeds else None for env in envs]
        for envs in (trace.train_envs, trace.eval_envs)
    )
    other = Subject(subject.file, subject.seed + 1).trace.train_envs
    again = {env.seeds[0] if env.seeds else None for env in other}
    wrong = []
    if None in {*train, *test} or len({*train}) < len(train) or len({*test}) < len(test):
        wrong.append("environments with the same seed, or none")
    if any(len(env.seeds) > 1 for env in trace.train_envs):
        wrong.append("environments seeded again and again")
    if {*train} & {*test}:
        wrong.append("evaluation on training seeds")
    if {*train} & again:
        wrong.append("two values of --seed share environments")
    return "; ".join(wrong) or "all different", "all different", not wrong


@check("train", "something draws from a generator that --seed does not set")
def same_seed_twice(subject: Subject):
    """Two runs with one seed end with the same evaluation and the same weights, bit for bit."""
    states = []
    for _ in range(2):
        random.seed(), np.random.seed(), torch.seed()
        module = subject.load()
        args = subject.args(module, rpo_alpha=0.5)
        summary = subject.train(module, args)
        (run,) = Path(args.runs_dir).iterdir()
        weights = torch.load(run / "checkpoint.pt", weights_only=True)["agent"]
        states.append((summary["eval_returns"], summary["train_return_last100"], weights))
    same = states[0][:2] == states[1][:2] and all(
        torch.equal(states[0][2][k], states[1][2][k]) for k in states[0][2]
    )
    return "equal" if same else "different", "equal", same


@check("evaluate", "evaluation changes the agent: statistics or weights must be frozen")
def evaluation_is_frozen(subject: Subject):
    """Weights and statistics before and after the evaluation are equal."""
    changed = set()
    for before, after, _ in subject.trace.evaluations:
        changed |= {
            name
            for name, tensor in after.state_dict().items()
            if not torch.equal(tensor, before[name])
        }
    return (
        "changed: " + ", ".join(sorted(changed)) if changed else "unchanged",
        "unchanged",
        not changed,
    )


@check(
    "evaluate",
    "not the raw returns of each environment's first episode, played by the policy's mode",
)
def evaluation_returns(subject: Subject):
    """Returns and actions of the evaluation against the protocol: first episodes, by the policy's mode."""
    trace = subject.trace
    _, agent, ours = trace.evaluations[-1]
    theirs, worst, deterministic = [], 0.0, "atari" not in subject.kinds
    for env in trace.eval_envs:
        total = 0.0
        for row in env.protocol[1:]:
            with torch.no_grad():
                mode = subject.best(agent, subject.seen(agent, row["obs"][None]))[0]
            worst = max(worst, largest(row["action"], mode)) if deterministic else 0.0
            total += row["reward"]
            if row["terminated"] or row["truncated"]:
                break
        theirs.append(total)
    error = largest(sorted(ours), sorted(theirs))
    hint = (
        "the actions of the evaluation are not the policy's mode" if worst > 1e-3 > error else None
    )
    return (
        f"returns {error:.1e}, actions {worst:.1e} off",
        "below 1e-03",
        max(worst, error) < 1e-3,
        hint,
    )


@check(
    "evaluate", "the evaluation's actions are not drawn as the file says it draws them", of="draws"
)
def evaluation_actions(subject: Subject):
    """Over 400 steps: draws from the policy itself; in Q-learning the best action but for --eval-e."""
    module = subject.load()
    args = subject.args(module, eval_episodes=100, eval_e=0.3)
    backend = [] if "pixels" in subject.kinds else ["gymnasium"]
    agent, (envs, obs, *_) = subject.agent(module, args), module.make_envs(args, *backend, 100, 7)
    module.evaluate(agent, envs, obs)
    rows = [row for env in envs.envs for row in env.unwrapped.protocol[1:] if not row["reset"]][
        :400
    ]
    off = variance = 0.0
    for i in range(0, len(rows), 50):
        part = rows[i : i + 50]
        action = torch.tensor([int(row["action"]) for row in part])
        with torch.no_grad():
            said = subject.outputs(
                agent, subject.seen(agent, np.stack([row["obs"] for row in part]))
            )[0].double()
        if "q-learning" in subject.kinds:
            right = 1 - 0.3 + 0.3 / NUM_ACTIONS
            off += float((action == said.argmax(-1)).double().sum()) - right * len(part)
            variance += right * (1 - right) * len(part)
        else:
            p = said.exp()
            mean = (p * said).sum(-1)
            off += float((said.gather(1, action[:, None])[:, 0] - mean).sum())
            variance += float((p * (said - mean[:, None]) ** 2).sum())
    deviations = off / variance**0.5
    hint = "more of the best actions than there should be" if deviations > 0 else None
    return f"{deviations:+.1f} deviations off", "below 5", abs(deviations) < 5, hint


@check("train", "the checkpoint lacks something the agent needs, or cannot be read as data")
def checkpoint(subject: Subject):
    """Read with weights_only=True into a new agent, it acts and values like the trained one."""
    trace = subject.trace
    file = trace.run_dir / "checkpoint.pt"
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
        copied = subject.agent(trace.module, trace.args)
        copied.load_state_dict(content["agent"])
        other = content.get("target_agent")
    except Exception as error:
        hint = "save tensors and plain data: a pickled module runs code when it is loaded"
        return f"{type(error).__name__}", "loads", False, hint
    final = trace.evaluations[-1][1]
    obs = subject.observations(20) if "pixels" in subject.kinds else 3 * torch.randn(100, 3)
    with torch.no_grad():
        said = [subject.outputs(agent, subject.seen(agent, obs)) for agent in (copied, final)]
    error = max(largest(*pair) for pair in zip(*said))
    if "q-learning" in subject.kinds:
        target = subject.agent(trace.module, trace.args)
        target.load_state_dict(other or {})
        error = max(error, largest(scores(target), trace.ticks[-1][1]))
    return close(error)


@check(
    "make_envs",
    "settings of Atari: frames skipped never or twice, clipped rewards, a game that ends with a life",
    of="atari",
)
def atari_settings(subject: Subject):
    """What AtariVectorEnv is made with: of an id that skips no frames, of one that skips 4, and with --frame-skip 3."""
    module, wrong = subject.load(), []
    args = subject.args(module)
    for env_id, flag, frames in (
        (args.env_id, 0, 4),
        ("ALE/Breakout-v5", 0, 4),
        (args.env_id, 3, 3),
    ):
        args.env_id, args.frame_skip = env_id, flag
        envs = module.make_envs(args, 3, 5)[0]
        spec, got = gym.spec(env_id).kwargs, envs.settings
        right = ATARI_DEFAULTS | {
            "game": spec["game"],
            "frameskip": frames,
            "reward_clipping": False,
        }
        right |= {
            name: spec[name] for name in ("repeat_action_probability", "max_num_frames_per_episode")
        }
        defaults = ATARI_DEFAULTS | got
        wrong += [
            f"{name} {defaults.get(name)} for {env_id}"
            for name in right
            if defaults.get(name) != right[name]
        ]
        wrong += ["number of environments"] * (envs.num_envs != 3)
    return "; ".join(wrong[:2]) or "as they should be", "as they should be", not wrong


ATARI_DEFAULTS = {
    "reward_clipping": True,
    "episodic_life": False,
    "frameskip": 4,
    "repeat_action_probability": 0.0,
}
ATARI_DEFAULTS |= {
    "full_action_space": False,
    "maxpool": True,
    "grayscale": True,
    "stack_num": 4,
    "noop_max": 30,
}
ATARI_DEFAULTS |= {
    "img_height": 84,
    "img_width": 84,
    "use_fire_reset": True,
    "max_num_frames_per_episode": 108_000,
}


@check(
    "Agent",
    "a convolution computed another way is not the convolution: its kernel, its stride, or its order",
    of="pixels",
)
def convolutions(subject: Subject):
    """Every convolution of the network, fed with pictures, against PyTorch's own with the same weights."""
    module, errors = subject.load(), []
    agent = subject.agent(module, subject.args(module))

    def compare(layer, inputs, output):
        x = inputs[0] if inputs[0].is_floating_point() else inputs[0].float() / 255
        errors.append(
            largest(output, torch.nn.Conv2d._conv_forward(layer, x, layer.weight, layer.bias))
        )

    for layer in agent.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(compare)
    with torch.no_grad():
        subject.outputs(agent, subject.observations(2))
    return close(max(errors))
