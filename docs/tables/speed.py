"""Steps per second and wall-clock time."""

from statistics import median

from tables.sources import difference, find, number, ours, read, scores_of, table


def seeds_speed(_) -> str:
    """Steps per second of single seeds and of several in a process: medians over rounds."""
    speeds = {}
    for row in read("results/seeds.csv"):
        speeds.setdefault((row["env_id"], row["exp_name"]), []).append(float(row["value"]))
    rows = []
    for env_id in dict.fromkeys(env_id for env_id, _ in speeds):
        single = median(speeds[env_id, "ppo_continuous"])
        five = median(speeds[env_id, "ppo_continuous_seeds-5"])
        rows.append([env_id, number(single), number(five), f"{five / single:.1f}"])
    head = ["task", "one seed a process", "five seeds a process", "ratio"]
    return table(head, rows, 1)


def ten_seeds(_) -> str:
    """Minutes from the start of a sweep to the figure of ten seeds, and what the runs reach."""
    minutes = {}
    for row in read("results/ten_seeds_seconds.csv"):
        minutes[row["env_id"], row["exp_name"]] = float(row["seconds"]) / 60
    single, five = "ppo_continuous", "ppo_continuous_seeds"
    rows = []
    for env_id in dict.fromkeys(env_id for env_id, _ in minutes):
        before, after = minutes[env_id, single], minutes[env_id, five]
        cells = [env_id, f"{before:.1f}", f"{after:.1f}", f"{before / after:.1f}"]
        cells += [ours("ten_seeds", env_id, name) for name in (single, five)]
        rows.append([*cells, difference("ten_seeds", env_id, five, single)])
    head = ["task", "minutes, one seed a process", "five", "ratio"]
    head += ["evaluation, one seed a process", "five", "difference"]
    return table(head, rows, 1)


def steps_or_minutes(_) -> str:
    """Steps and minutes until a training return on HalfCheetah-v5 was first logged: medians over seeds."""
    from plainrl_tools import results

    files = [("off_policy.csv", "sac_continuous"), ("time_to_return.csv", "ppo_continuous")]
    rows = []
    for file, exp_name in files:
        found = results.read_csv(find(f"results/{file}"))
        key = ("HalfCheetah-v5", exp_name)
        returns = results.curves_of(found, results.CURVE)[key]
        seconds = results.curves_of(found, results.CLOCK)[key]
        cells = [f"`{exp_name}.py`", str(len(returns))]
        for goal in (1000, 2000):
            reached = []
            for seed, curve in returns.items():
                step = min(step for step, value in curve if value >= goal)
                reached.append((step, dict(seconds[seed])[step] / 60))
            steps, minutes = (median(column) for column in zip(*reached))
            cells += [f"{steps:,.0f}", f"{minutes:.1f}"]
        rows.append(cells)
    head = ["file", "runs", "steps to 1,000", "minutes", "steps to 2,000", "minutes"]
    return table(head, rows, 1)


def off_policy_speed(_) -> str:
    """Steps per second of the rounds, and the median ratio to stable-baselines3 in the same round."""
    speeds = {}
    for row in read("results/off_policy_speed.csv"):
        speeds.setdefault(row["implementation"], []).append(float(row["steps_per_second"]))
    peer = speeds["stable-baselines3, float32"]
    rows = []
    for name, values in speeds.items():
        ratio = median(value / baseline for value, baseline in zip(values, peer))
        rows.append([name, ", ".join(f"{value:.0f}" for value in values), f"{ratio:.2f}"])
    return table(["implementation", "steps per second in three rounds", "ratio"], rows, 1)


def choose_minutes(_) -> str:
    """Steps, seconds and return of PPO and of a file with a replay buffer on three tasks."""
    files = [
        ("CartPole-v1", "ppo", "classic", "200k"),
        ("CartPole-v1", "dqn", "classic", "200k"),
        ("Acrobot-v1", "ppo", "classic", "200k"),
        ("Acrobot-v1", "dqn", "classic", "200k"),
        ("Pendulum-v1", "ppo_continuous", "continuous", "1M"),
        ("Pendulum-v1", "sac_continuous", "off_policy", "20k"),
    ]
    rows = []
    for env_id, file, scores, steps in files:
        for row in scores_of(scores):
            if (row["env_id"], row["exp_name"]) == (env_id, file):
                seconds = number(float(row["wall_time_s"]), 100)
                cells = [steps, str(row["seeds"]), f"{seconds} s", ours(scores, env_id, file)]
                rows.append([env_id, f"`{file}.py`", *cells])
    return table(["task", "file", "steps", "runs", "time of a run", "return"], rows, 2)


def gpu_speed(_) -> str:
    """Steps per second of the Atari files on an H200 and on eight cores of its machine."""
    speeds = {}
    for row in read("results/gpu_h200.csv"):
        if row["metric"] == "steps/s":
            key = row["part"], row["name"], row["device"]
            speeds.setdefault(key, []).append(float(row["value"]))
    rows = []
    for file in ("ppo_atari", "a2c_atari", "dqn_atari"):
        sides = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
        means = [sum(speeds[part, file, where]) for part, where in sides]  # measured once each
        peers = []
        for where in ("cpu", "cuda"):  # the faster of two ways to step the environments
            ways = [
                speeds.get(("speed peer", f"{file}, {way}", where), [0])
                for way in ("one process", "a process each")
            ]
            peers.append(max(sum(way) / len(way) for way in ways))
        rows.append([f"`{file}.py`", *(number(value) for value in [*means, *peers])])
    return table(["file", "CPU", "CUDA", "CUDA, `--compile`", "SB3, CPU", "SB3, CUDA"], rows, 1)


def scaling_speed(_) -> str:
    """Steps per second with Ray's runners and with ranks, by the wait of a step."""
    rollout = 16 * 32  # environments x steps of an iteration
    rows = []
    found = [row for row in read("results/scaling.csv") if row["environments"] == "16"]
    for words, key in (("runners", "runners"), ("ranks", "ranks")):
        for workers in ("1", "2", "4", "8", "16"):
            cells = []
            for wait in ("0", "5", "20"):
                speed = [
                    rollout / float(row["seconds"])
                    for row in found
                    if row[key] == workers and row["wait_ms"] == wait
                ]
                cells.append(number(speed[0], 100) if speed else "")
            if any(cells):
                rows.append([f"{workers} {words if workers != '1' else words[:-1]}", *cells])
    return table(["", "0 ms", "5 ms", "20 ms"], rows, 1)
