"""Search the flags of a script with Optuna: several environments and seeds a trial, pruning, a study that goes on.

    python scripts/tune.py --script algos/ppo_continuous.py --env-ids Pendulum-v1 Hopper-v5 --seeds 1-2 \
        --scales Pendulum-v1=-1400,-150 Hopper-v5=0,3000 --trials 50 --workers 4 --study studies/ppo \
        --space "learning-rate=log(1e-4,3e-3)" "update-epochs=int(3,10)" "num-minibatches=choice(16,32,64)" \
        -- --total-timesteps 300000
    python scripts/tune.py --study studies/ppo --workers 4                   # after any end, kill -9 included
    python scripts/tune.py --study studies/ppo --workers 4 --retest 11-20    # the best trial against the defaults

Trial 0 is the script with its defaults. A trial is a run of every seed and environment, one after the other and in the
same order in every trial, by the machinery of sweep.py; --workers trials are at work at a time. Its score is the mean
(or --statistic iqm) over these runs of (evaluation - LOW) / (HIGH - LOW), by --scales or --normalise. At four points of
each run the score so far, of which the last part is a training return until the evaluation is there, is compared with
the median of the complete trials at the same point: a trial below it is pruned, its run ended by SIGTERM.
The study's folder holds study.db (SQLite), the runs of each trial, report.md, report.png and trials.csv.
"""

import contextlib
import hashlib
import io
import math
import os
import shlex
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal

import sweep
from common import ROOT, check, check_least, one_line
from sweeping import clusters, plan

if find_spec("optuna") and find_spec("matplotlib"):  # else main() says what to install
    import optuna
    from optuna.trial import TrialState
    from tuning import report
    from tuning.progress import PARTS, advance, mean_returns, score_of
    from tuning.space import flag_of, read_space, scales_of

POLL = 1.0  # seconds between two looks at a run
DECLARED = ("script", "env_ids", "space", "seeds", "scales", "statistic")  # what makes a study
OWN = (
    "exit status",
    "no end after",
)  # how sweep.py begins the reason of a run that failed by itself


@dataclass
class Options:
    script: Path | None = None  # a file with an Args; without it --study goes on as declared
    env_ids: tuple[str, ...] = ()  # environments of every trial
    # NAME=log(1e-4,3e-3), NAME=uniform(0.9,0.99), NAME=int(3,10) or NAME=choice(4,8,32)
    space: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ("1-2",)  # seeds of every trial, such as 1-3 7
    scales: tuple[str, ...] = ()  # ENV_ID=LOW,HIGH: the returns that count as 0 and as 1
    normalise: Path = ROOT / "benchmarks/normalise.csv"  # CSV env_id,random,reference: more scales
    statistic: Literal["mean", "iqm"] = "mean"  # over the runs of a trial
    study: Path = Path("study")  # folder of the study
    trials: int = 50  # of the whole study, pruned and failed ones included
    startup: int = 10  # trials at random; so many must be complete before one is pruned
    prune: bool = True  # end trials that are behind
    warmup: int = 2  # points of the first run, four a run, before which none is pruned
    workers: int = 1  # trials at a time
    device: str = ""  # handed on to every run; several GPUs are dealt out to the workers in turn
    timeout: float = 0.0  # minutes after which a run is ended and its trial fails; 0: never
    ray: str = ""  # address of a Ray cluster; local starts one on this machine
    num_cpus: float = 1  # CPUs that Ray reserves for a run
    num_gpus: float | None = None  # GPUs that Ray reserves for a run
    retest: tuple[str, ...] = ()  # fresh seeds, to compare the best trial with the defaults


def sweep_options(options: Options, **more) -> sweep.Options:
    """The sweep of a trial, or of the retest."""
    names = {field.name for field in fields(sweep.Options)} & {f.name for f in fields(Options)}
    same = {name: getattr(options, name) for name in names}
    return sweep.Options(**same | more)


# ---- the trials ------------------------------------------------------------------------------------------------------


class Tuner:
    """What the workers share: the study, for one at a time, and a list that has a number when all are to stop."""

    def __init__(self, options: Options, common: list[str], text: bytes, space, scales: dict):
        self.options = options
        self.common = common
        self.text = text
        self.space, self.defaults, self.inside = space
        self.scales = scales
        self.study = None
        self.guard = threading.RLock()
        self.stop = []
        self.halts = []  # the same of every trial

    def end(self, number: int, _) -> None:
        for halt in (self.stop, *self.halts):
            halt.append(number)

    def flags(self, trial) -> list[str]:
        """What a trial adds to the command line; that of the defaults nothing, wherever the space lies."""
        words = []
        for name in self.space:
            if trial.number and name in trial.params:
                words += flag_of(name, trial.params[name], self.defaults[name], self.space[name])
        return words

    def reopen(self) -> None:
        """Put the trials that were at work back into the queue, under their numbers and with their flags. The storage
        does it; the study of Optuna would begin new ones."""
        storage = self.study._storage
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def next_trial(self):
        """One from the queue, else a new one; None when the study has all its trials."""
        trials = self.study.get_trials(deepcopy=False)
        queue = [trial for trial in trials if trial.state == TrialState.WAITING]
        if self.stop or (not queue and len(trials) >= self.options.trials):
            return None
        number = queue[0].number if queue else len(trials)
        # as its seed: with the same one for all, a restart would draw the first trials again
        random = {"seed": number, "n_startup_trials": self.options.startup}
        self.study.sampler = optuna.samplers.TPESampler(**random)
        names = self.space if number else self.inside
        return self.study.ask({name: self.space[name] for name in names})

    def behind(self, point: int, value: float) -> bool:
        """Whether to prune: it is below the median of the complete trials at the same point. Optuna's MedianPruner
        takes a trial's best value so far: after an easy environment it would never prune."""
        if not self.options.prune or point < self.options.warmup:
            return False
        complete = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        points = [trial.intermediate_values for trial in complete]
        values = [known[point] for known in points if point in known]
        return len(values) >= max(1, self.options.startup) and value < median(values)

    def work(self, slot: int) -> None:
        """A worker: one trial after the other. An error ends the others too."""
        try:
            while True:
                with self.guard:
                    trial = self.next_trial()
                if trial is None:
                    break
                self.carry_out(trial, slot)
        except BaseException:
            self.stop.append(0)
            raise

    def carry_out(self, trial, slot: int) -> None:
        """One trial, from where it is. A stop leaves it open."""
        begin, script = time.monotonic(), self.options.script
        folder = self.options.study / f"trial-{trial.number}"
        options = {"scripts": (script,), "tag": folder.name, "runs_dir": folder}
        options = sweep_options(self.options, **options)
        halt, said = [], io.StringIO()
        self.halts.append(halt)
        with self.guard:
            same = script.is_file() and script.read_bytes() == self.text
            check(same, f"{script} was edited while the study was at work", 1)
            try:
                with contextlib.redirect_stderr(said):
                    jobs = sweep.expand(options, self.common + self.flags(trial))
            except SystemExit:  # the script does not take these flags together
                self.finish(trial, begin, "failed", said.getvalue().partition(": ")[2].strip())
                return
            run = runner(options, jobs, halt)
            reported = set(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        sweep.declare(jobs, folder)
        scores, pruned, over = [], "", False
        with ThreadPoolExecutor(1) as pool:
            shared = slot, jobs, run, options, halt, threading.Lock()
            at_work = pool.submit(sweep.work, *shared)
            while not over:
                over = bool(wait([at_work], POLL).done)
                points = advance(jobs, scores, folder, self.scales, self.options.statistic)
                for point in sorted(points.keys() - reported):
                    reported.add(point)
                    with self.guard:
                        trial.report(points[point], point)
                        may = trial.number and not over and not halt
                        if may and self.behind(point, points[point]):
                            pruned = f"at point {point} of {len(jobs) * PARTS}"
                            halt.append(signal.SIGTERM)
                if self.stop or any(job.state == "failed" for job in jobs):
                    halt.append(signal.SIGTERM)
            at_work.result()  # an error of the sweep itself is raised here
        failed = [job for job in jobs if job.state == "failed"]
        with self.guard:
            if len(scores) == len(jobs):
                trial.set_user_attr("returns", mean_returns(jobs, scores, self.scales))
                self.finish(trial, begin, "complete", scores=scores)
            elif pruned:
                self.finish(trial, begin, "pruned", pruned)
            elif failed:
                words = f"{failed[0].name}: {failed[0].outcome}"
                by_itself = trial.number and failed[0].outcome.startswith(OWN)
                # else the trial stays open
                check(by_itself, f"trial {trial.number} cannot go on: {words}", 1)
                self.finish(trial, begin, "failed", words)

    def finish(self, trial, begin: float, what: str, words: str = "", scores=()) -> None:
        """Tell the study, the terminal and the report. A failed trial counts as pruned, as in RL Zoo: of a trial of
        the state FAIL the sampler learns nothing, and goes there again."""
        value = None
        if scores:
            value = score_of(scores, self.options.statistic)
            if not math.isfinite(value):
                what, words, value = "failed", "an evaluation is not finite", None
        if what == "failed":
            trial.set_user_attr("failed", words)
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        self.study.tell(trial, value, state)
        best = report.best_of(self.study.get_trials(deepcopy=False))
        lines = [f"trial {trial.number} {what} {words}".strip()]
        lines[0] += f" after {time.monotonic() - begin:.0f} s"
        lines += [f"score {value:.3f}"] if value is not None else []
        lines += [f"best {best.value:.3f} (trial {best.number})"] if best else []
        flags = shlex.join(self.flags(trial)) or "the defaults"
        print(", ".join([*lines, flags]), flush=True)
        report.write_report(self.study, self.options, self.common, self.flags)


def runner(options: sweep.Options, jobs, halt: list[int]):
    """What carries out a run, here or on Ray, until there is a number in `halt`."""
    if not options.ray:
        return sweep.local_runner(options, jobs, halt)
    variables = sweep.environment(max(1, int(options.num_cpus)))
    return clusters.ray_runner(options, variables, sweep.log_file, halt)


def retest(options: Options, common: list[str], tuner: Tuner) -> int:
    """The best trial against the defaults on fresh seeds, by a sweep in the study's folder."""
    best = report.best_of(tuner.study.get_trials())
    check(best, f"--retest: {options.study} has no complete trial")
    check(best.number, "--retest: no trial was better than the defaults (trial 0)")
    seeds = plan.seed_list(options.retest)
    check(len(seeds) > 1, "--retest: two sides are compared by two seeds or more, such as 11-20")
    old = sorted(set(seeds) & set(plan.seed_list(options.seeds)))
    check(not old, f"--retest: the search has seen seed {' '.join(map(str, old))}; give others")
    jobs, folder, lines = options.study / "retest.jobs", options.study / "retest", []
    for tag, flags in (("defaults", []), (f"trial-{best.number}", tuner.flags(best))):
        words = ["--scripts", str(options.script), "--env-ids", *options.env_ids, "--seeds"]
        words += [*map(str, seeds), "--tag", tag, "--", *common, *flags]
        lines.append(shlex.join(words))
    jobs.write_text("\n".join(lines) + "\n")
    status = sweep.main(
        sweep_options(options, seeds=("1",), env_ids=(), jobs=jobs, runs_dir=folder), []
    )
    if not status:
        print(report.write_retest(options, best, tuner.scales, seeds), end="")
    return status


def read_declared(options: Options) -> dict:
    """What the study was declared as; nothing, where it is new."""
    if not (options.study / "study.db").is_file():
        return {}
    try:
        return open_study(options).user_attrs.get("declared", {})
    except Exception as error:
        check(False, f"--study {options.study} cannot be read: {one_line(error)}")


def open_study(options: Options):
    """The study in the folder, made if it is new. SQLite holds numbers and JSON, nothing that could run code."""
    url = f"sqlite:///{options.study / 'study.db'}"
    names = {"study_name": "study", "direction": "maximize", "load_if_exists": True}
    return optuna.create_study(storage=url, **names)


def main(options: Options, common: list[str]) -> int:
    missing = [name for name in ("optuna", "matplotlib") if not find_spec(name)]
    check(not missing, f"no {' and '.join(missing)}: pip install -r requirements-tune.txt")
    check_least(1, options, "trials", "workers")
    check_least(0, options, "startup", "warmup", "timeout", "num_cpus", "num_gpus")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    stored = read_declared(options)
    if stored and not options.script:
        again = {name: tuple(stored[name]) for name in DECLARED[1:-1]}
        again |= {"script": Path(stored["script"]), "statistic": stored["statistic"]}
        usual = {name: (getattr(Options(), name), again[name]) for name in DECLARED}
        alone = all(getattr(options, name) in usual[name] for name in DECLARED) and not common
        check(
            alone, "give the whole command, or --study alone: it knows its script, seeds and flags"
        )
        options, common = replace(options, **again), stored["flags"]
    words = "give --script and --env-ids, or a --study that exists"
    check(options.script and options.env_ids, f"{words}; {options.study} holds none")
    module = plan.module_of(options.script)
    space = read_space(options, module, common)
    scales = scales_of(options)
    folder = options.study / "trial-0"
    jobs = sweep.expand(sweep_options(options, scripts=(options.script,), runs_dir=folder), common)
    options = replace(options, scales=tuple(f"{k}={a},{b}" for k, (a, b) in scales.items()))
    text = options.script.read_bytes()
    declared = {name: getattr(options, name) for name in DECLARED} | {"flags": common}
    declared |= {"script": str(options.script), "sha256": hashlib.sha256(text).hexdigest()}
    declared = plan.plain(declared)
    other = [name for name in declared if stored.get(name, declared[name]) != declared[name]]
    words = "made with another " + " and ".join(other).replace("sha256", "text of the script")
    check(not other, f"--study {options.study} was {words}; take another folder")
    few = f"--statistic iqm: of {len(jobs)} runs it is the mean; give four seeds or more"
    check(options.statistic == "mean" or len(jobs) > 3, few)
    runner(sweep_options(options, runs_dir=folder), jobs, [])  # is what it needs there?
    tuner = Tuner(options, common, text, space, scales)
    if options.retest:
        check(stored, f"--retest: there is no study in {options.study}")
        tuner.study = open_study(options)
        return retest(options, common, tuner)
    try:
        options.study.mkdir(parents=True, exist_ok=True)
        held = sweep.hold(options.study / "study.lock")
        check(held is not None, f"another tuner has --study {options.study} at work")
        tuner.study = open_study(options)
        tuner.study.set_user_attr("declared", declared)
    except Exception as error:
        check(False, f"--study {options.study} cannot be written to: {one_line(error)}")
    if not tuner.study.get_trials():
        tuner.study.enqueue_trial(tuner.inside)
    tuner.reopen()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tuner.end)
    try:
        with ThreadPoolExecutor(options.workers) as pool:
            workers = [pool.submit(tuner.work, slot) for slot in range(options.workers)]
        for worker in workers:
            worker.result()  # an error is raised here
    finally:
        tuner.reopen()
        os.close(held)
    count = report.counts(tuner.study.get_trials())
    numbers = ", ".join(f"{number} {what}" for what, number in count.items())
    print(f"{sum(count.values())} trials: {numbers}; see {options.study}")
    if tuner.stop:
        print("stopped; the same command goes on from here")
        return 128 + tuner.stop[0]
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, sweep.interrupt)
    try:
        sys.exit(main(*plan.read_flags(Options, __doc__)))
    except KeyboardInterrupt as stopped:
        sys.exit(128 + stopped.args[0])
