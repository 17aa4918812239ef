"""Search the flags of a script with Optuna, over several environments and seeds, with pruning and resumable studies.

    python scripts/tune.py --script algos/ppo_continuous.py --env-ids Pendulum-v1 Hopper-v5 --seeds 1-2 \
        --scales Pendulum-v1=-1400,-150 Hopper-v5=0,3000 --trials 50 --workers 4 --study studies/ppo \
        --space "learning-rate=log(1e-4,3e-3)" "update-epochs=int(3,10)" "num-minibatches=choice(16,32,64)" \
        -- --total-timesteps 300000
    python scripts/tune.py --study studies/ppo --workers 4                   # continue, even after kill -9
    python scripts/tune.py --study studies/ppo --workers 4 --retest 11-20    # compare the best trial with the defaults

Trial 0 is the script with its defaults. A trial trains every seed and environment, one after the other and in the same
order in every trial, with the functions of sweep.py. --workers trials run at a time. The score of a trial is the mean
(or --statistic iqm) over its runs of (evaluation - LOW) / (HIGH - LOW), with LOW and HIGH from --scales or --normalise.

Pruning: at four points of each run the score so far is compared with the median of the complete trials at the same
point. Until the evaluation of a run exists, its training return is used. If the score is below the median, the trial is
pruned and its run is ended by SIGTERM.

The study's folder contains study.db (SQLite), the runs of each trial, report.md, report.png and trials.csv.
"""

import contextlib
import hashlib
import io
import math
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
from plainrl_tools.common import ROOT, check, check_least, one_line
from plainrl_tools.sweeping import claims, clusters, plan

if find_spec("optuna") and find_spec("matplotlib"):  # otherwise main() asks to install them
    import optuna
    from optuna.trial import TrialState
    from plainrl_tools.tuning import report
    from plainrl_tools.tuning.progress import PARTS, advance, mean_returns, score_of
    from plainrl_tools.tuning.space import flag_of, read_space, scales_of

POLL = 1.0  # seconds between two checks of a run
DECLARED = ("script", "env_ids", "space", "seeds", "scales", "statistic")  # fixed for a study
RUN_FAILED = ("exit status", plan.TIMED_OUT)  # how sweep.py's reason begins if a run itself failed


@dataclass
class Options:
    script: Path | None = None  # a file with Args; without it --study continues as it was declared
    env_ids: tuple[str, ...] = ()  # environments of every trial
    # NAME=log(1e-4,3e-3), NAME=uniform(0.9,0.99), NAME=int(3,10) or NAME=choice(4,8,32)
    space: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ("1-2",)  # seeds of every trial, such as 1-3 7
    scales: tuple[str, ...] = ()  # ENV_ID=LOW,HIGH: the returns that are normalised to 0 and to 1
    normalise: Path = (
        ROOT / "benchmarks/studies/tuning/normalise.csv"
    )  # CSV env_id,random,reference: more scales
    statistic: Literal["mean", "iqm"] = "mean"  # over the runs of a trial
    study: Path = Path("study")  # folder of the study
    trials: int = 50  # number of trials of the whole study, including pruned and failed ones
    startup: int = 10  # random trials at the start; pruning begins after as many complete trials
    prune: bool = True  # end trials early whose score so far is below the median
    warmup: int = 2  # the first point at which a trial may be pruned; each run has four points
    workers: int = 1  # trials that run at a time
    device: str = ""  # --device of every run; several GPUs are assigned to the workers in turn
    timeout: float = 0.0  # minutes after which a run is ended and its trial fails; 0: no limit
    ray: str = ""  # address of a Ray cluster; local starts one on this machine
    num_cpus: float = 1  # CPUs that Ray reserves for a run
    num_gpus: float | None = None  # GPUs that Ray reserves for a run
    retest: tuple[str, ...] = ()  # new seeds, to compare the best trial with the defaults


def sweep_options(options: Options, **more) -> sweep.Options:
    """The options of the sweep for a trial or for the retest."""
    names = {field.name for field in fields(sweep.Options)} & {f.name for f in fields(Options)}
    same = {name: getattr(options, name) for name in names}
    return sweep.Options(**same | more)


# ---- the trials ------------------------------------------------------------------------------------------------------


class Tuner:
    """What the workers share: the study, which one worker uses at a time, and the signal that stops all of them."""

    def __init__(self, options: Options, common: list[str], text: bytes, space, scales: dict):
        self.options = options
        self.common = common
        self.text = text
        self.space, self.defaults, self.inside = space
        self.scales = scales
        self.study = None
        self.guard = threading.RLock()
        self.stop = []  # the number of the signal, once all workers have to stop
        self.halts = []  # such a list for every trial

    def end(self, number: int, _) -> None:
        for halt in (self.stop, *self.halts):
            halt.append(number)

    def flags(self, trial) -> list[str]:
        """The flags that a trial adds to the command line. Trial 0 (the defaults) adds none."""
        words = []
        for name in self.space:
            if trial.number and name in trial.params:
                words += flag_of(name, trial.params[name], self.defaults[name], self.space[name])
        return words

    def reopen(self) -> None:
        """Put interrupted trials back into the queue with their numbers and flags.

        This uses Optuna's storage, since its study can only begin new trials.
        """
        storage = self.study._storage
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)

    def next_trial(self):
        """The next trial from the queue, or a new one, or None if the study has all its trials."""
        trials = self.study.get_trials(deepcopy=False)
        queue = [trial for trial in trials if trial.state == TrialState.WAITING]
        if self.stop or (not queue and len(trials) >= self.options.trials):
            return None
        number = queue[0].number if queue else len(trials)
        # Seed the sampler by the trial's number: with a fixed seed, a restart would draw the first trials again.
        random = {"seed": number, "n_startup_trials": self.options.startup}
        self.study.sampler = optuna.samplers.TPESampler(**random)
        names = self.space if number else self.inside
        return self.study.ask({name: self.space[name] for name in names})

    def below_median(self, point: int, value: float) -> bool:
        """Whether to prune a trial: whether its score is below the median of the complete trials at the same point.

        Optuna's MedianPruner uses a trial's best value so far, so it would never prune after an easy environment.
        """
        if not self.options.prune or point < self.options.warmup:
            return False
        complete = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        points = [trial.intermediate_values for trial in complete]
        values = [known[point] for known in points if point in known]
        return len(values) >= max(1, self.options.startup) and value < median(values)

    def work(self, slot: int) -> None:
        """Run one trial after the other, in a thread for each worker. An error ends the other workers, too."""
        try:
            while True:
                with self.guard:
                    trial = self.next_trial()
                if trial is None:
                    break
                self.run_trial(trial, slot)
        except BaseException:
            self.stop.append(0)
            raise

    def run_trial(self, trial, slot: int) -> None:
        """Run or continue one trial. A stop signal leaves it in the queue."""
        begin, script = time.monotonic(), self.options.script
        folder = self.options.study / f"trial-{trial.number}"
        options = {"scripts": (script,), "tag": folder.name, "runs_dir": folder}
        options = sweep_options(self.options, **options)
        halt, errors = [], io.StringIO()
        self.halts.append(halt)
        with self.guard:
            same = script.is_file() and script.read_bytes() == self.text
            check(same, f"{script} was edited during the study; undo it, or use another --study", 1)
            try:
                with contextlib.redirect_stderr(errors):
                    jobs = sweep.expand(options, self.common + self.flags(trial))
            except SystemExit:  # the script rejects this combination of flags
                self.finish(trial, begin, "failed", errors.getvalue().partition(": ")[2].strip())
                return
            run = runner(options, jobs, halt)
            reported = set(self.study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        sweep.declare(jobs, folder)
        flags = shlex.join(self.flags(trial)) or "the defaults"
        print(f"trial {trial.number} started: {flags}", flush=True)
        scores, pruned, ended = [], "", False
        with ThreadPoolExecutor(1) as pool:
            shared = slot, jobs, run, options, halt, threading.Lock()
            runs = pool.submit(sweep.work, *shared)
            while not ended:
                ended = bool(wait([runs], POLL).done)
                complete = len(scores)
                points = advance(jobs, scores, folder, self.scales, self.options.statistic)
                if complete < len(scores) < len(jobs):
                    print(f"trial {trial.number}: {len(scores)} of {len(jobs)} runs", flush=True)
                for point in sorted(points.keys() - reported):
                    reported.add(point)
                    with self.guard:
                        trial.report(points[point], point)
                        prunable = trial.number and not ended and not halt
                        if prunable and self.below_median(point, points[point]):
                            pruned = f"at point {point} of {len(jobs) * PARTS}"
                            halt.append(signal.SIGTERM)
                if self.stop or any(job.state == "failed" for job in jobs):
                    halt.append(signal.SIGTERM)
            runs.result()  # raises an error of the sweep itself
        failed = [job for job in jobs if job.state == "failed"]
        with self.guard:
            if len(scores) == len(jobs):
                trial.set_user_attr("returns", mean_returns(jobs, scores, self.scales))
                self.finish(trial, begin, "complete", scores=scores)
            elif pruned:
                self.finish(trial, begin, "pruned", pruned)
            elif failed:
                reason = f"{failed[0].name}: {failed[0].outcome}"
                run_failed = trial.number and failed[0].outcome.startswith(RUN_FAILED)
                # Otherwise the trial stays in the queue.
                check(run_failed, f"trial {trial.number} cannot continue: {reason}", 1)
                self.finish(trial, begin, "failed", reason)

    def finish(self, trial, begin: float, what: str, reason: str = "", scores=()) -> None:
        """Record the result of a trial in the study, on the terminal and in the report.

        A failed trial counts as pruned, as in RL Zoo. The sampler learns nothing from a trial in the state FAIL and
        would try similar flags again.
        """
        value = None
        if scores:
            value = score_of(scores, self.options.statistic)
            if not math.isfinite(value):
                what, reason, value = "failed", "an evaluation return is NaN or infinite", None
        if what == "failed":
            trial.set_user_attr("failed", reason)
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        self.study.tell(trial, value, state)
        best = report.best_of(self.study.get_trials(deepcopy=False))
        lines = [f"trial {trial.number} {what} {reason}".strip()]
        lines[0] += f" after {time.monotonic() - begin:.0f} s"
        lines += [f"score {value:.3f}"] if value is not None else []
        lines += [f"best {best.value:.3f} (trial {best.number})"] if best else []
        flags = shlex.join(self.flags(trial)) or "the defaults"
        print(", ".join([*lines, flags]), flush=True)
        report.write_report(self.study, self.options, self.common, self.flags)


def runner(options: sweep.Options, jobs, halt: list[int]):
    """Return the function that executes a run, on this machine or on Ray, until `halt` contains a number."""
    if not options.ray:
        return sweep.local_runner(options, jobs, halt)
    variables = sweep.environment(max(1, int(options.num_cpus)))
    return clusters.ray_runner(options, variables, sweep.log_file, halt)


def retest(options: Options, common: list[str], tuner: Tuner) -> int:
    """Compare the best trial with the defaults on new seeds, by a sweep in the study's folder."""
    best = report.best_of(tuner.study.get_trials())
    check(best, f"--retest: {options.study} has no complete trial")
    check(best.number, "--retest: no trial was better than the defaults (trial 0)")
    flag = f"--retest {' '.join(options.retest)}"
    seeds = plan.seed_list(options.retest)
    check(len(seeds) > 1, f"{flag}: a comparison needs at least two seeds, such as 11-20")
    old = " ".join(map(str, sorted(set(seeds) & set(plan.seed_list(options.seeds)))))
    check(not old, f"{flag}: the search has already used seed {old}; give other seeds")
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
    """The options that the study was declared with, or an empty dictionary for a new study."""
    if not (options.study / "study.db").is_file():
        return {}
    try:
        return open_study(options).user_attrs.get("declared", {})
    except Exception as error:
        check(False, f"--study {options.study} cannot be read: {one_line(error)}")


def open_study(options: Options):
    """Open the study in the folder, or create it. The SQLite file contains numbers and JSON, nothing executable."""
    url = f"sqlite:///{options.study / 'study.db'}"
    names = {"study_name": "study", "direction": "maximize", "load_if_exists": True}
    return optuna.create_study(storage=url, **names)


def main(options: Options, common: list[str]) -> int:
    missing = [name for name in ("optuna", "matplotlib") if not find_spec(name)]
    needed = f"tune.py requires {' and '.join(missing)}: pip install -e '.[tune]'"
    check(not missing, needed)
    check_least(1, options, "trials", "workers")
    check_least(0, options, "startup", "warmup", "timeout", "num_cpus", "num_gpus")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    stored = read_declared(options)
    if stored and not options.script:
        again = {name: tuple(stored[name]) for name in DECLARED[1:-1]}
        again |= {"script": Path(stored["script"]), "statistic": stored["statistic"]}
        usual = {name: (getattr(Options(), name), again[name]) for name in DECLARED}
        alone = all(getattr(options, name) in usual[name] for name in DECLARED) and not common
        stored_already = "the study already has its script, seeds and flags"
        check(alone, f"give the whole command, or --study without --script: {stored_already}")
        options, common = replace(options, **again), stored["flags"]
    needed = "give --script and --env-ids, or an existing --study"
    check(options.script and options.env_ids, f"{needed}; {options.study} has no study")
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
    changed = " and ".join(other).replace("sha256", "version of the script")
    changed = f"--study {options.study} was made with another {changed}; use another folder"
    check(not other, changed)
    few = f"--statistic iqm is the mean for {len(jobs)} runs; give four or more --seeds"
    check(options.statistic == "mean" or len(jobs) > 3, few)
    # This call only checks that a GPU or Ray is available, if the runs need them.
    runner(sweep_options(options, runs_dir=folder), jobs, [])
    tuner = Tuner(options, common, text, space, scales)
    if options.retest:
        check(stored, f"--retest: there is no study in {options.study} (--study)")
        tuner.study = open_study(options)
        return retest(options, common, tuner)
    try:
        options.study.mkdir(parents=True, exist_ok=True)
        file, keeper = sweep.claim_file("study", options.study), claims.Keeper()
        while not (claim := keeper.hold(file)):  # its holder has ended, or will have within STALE
            used = f"--study {options.study} is in use by another tune.py; wait until it has ended"
            check(not claims.is_held(file), used)
            time.sleep(1)
        tuner.study = open_study(options)
        tuner.study.set_user_attr("declared", declared)
    except Exception as error:
        check(False, f"--study {options.study} cannot be written to: {one_line(error)}")
    ended = len(tuner.study.get_trials())
    if not ended:
        tuner.study.enqueue_trial(tuner.inside)
    tuner.reopen()
    print(f"study {options.study}: {ended} of {options.trials} trials so far", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tuner.end)
    try:
        with ThreadPoolExecutor(options.workers) as pool:
            workers = [pool.submit(tuner.work, slot) for slot in range(options.workers)]
        for worker in workers:
            worker.result()  # raises an error of the worker
    finally:
        tuner.reopen()
        claims.release(claim)
        keeper.close()
    count = report.counts(tuner.study.get_trials())
    numbers = ", ".join(f"{number} {what}" for what, number in count.items())
    print(f"{sum(count.values())} trials: {numbers}; see {options.study}")
    if tuner.stop:
        print("stopped; the same command continues the study")
        return 128 + tuner.stop[0]
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, sweep.interrupt)
    try:
        sys.exit(main(*plan.read_flags(Options, __doc__)))
    except KeyboardInterrupt as stopped:
        sys.exit(128 + stopped.args[0])
