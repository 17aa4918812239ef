"""Claims: of several sweeps, also on several machines, a single one holds the claim to a run. No file is locked.

The nth claim to NAME is the file NAME.n, made by an exclusive create, which also holds on NFS, and never made again: of
all that find NAME.n released or without a heartbeat, one makes NAME.n+1. A keeper, which is a small process, renews the
time of the file. It reads from a pipe whose other end the holder and its runs have; so it knows when all have ended.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

BEAT = 10.0  # seconds between two heartbeats
STALE = 120.0  # seconds without a heartbeat after which a claim is void
HELD, RELEASED = "claimed ", "released"  # of equal length: the one can replace the other
seen: dict[Path, tuple[int, float, float]] = {}  # claim: heartbeat, its age, time of the last look


def following(claim: Path) -> Path:
    name, _, number = claim.name.rpartition(".")
    return claim.with_name(f"{name}.{int(number) + 1}")


def latest(file: Path) -> Path:
    """The latest claim, or the name of number 0, which never exists."""
    claim = file.with_name(f"{file.name}.0")
    while following(claim).exists():
        claim = following(claim)
    return claim


def is_released(claim: Path) -> bool:
    return claim.read_text().startswith(RELEASED)


def is_held(file: Path) -> bool:
    """Whether the latest claim has a heartbeat, by the clock of this machine. Nothing is written."""
    claim = latest(file)
    try:
        return not is_released(claim) and time.time() - claim.stat().st_mtime < STALE
    except OSError:  # there is no claim
        return False


def is_void(claim: Path) -> bool:
    """Whether this process has seen the claim for STALE seconds without a heartbeat.

    Clocks of machines may differ, so their times are not compared. Of the time between two looks, 2 seconds count: the
    rest may be a file system that did not answer or a machine that slept, for the holder as well.
    """
    beat, now = claim.stat().st_mtime_ns, time.monotonic()
    last, age, then = seen.get(claim, (0, 0.0, now))
    seen[claim] = beat, age + min(now - then, 2.0) if beat == last else 0.0, now
    return seen[claim][1] > STALE


def hold(file: Path) -> Path | None:
    """Make the next claim, or return None while the latest one is held. It needs a Keeper if it lasts."""
    claim = latest(file)
    if claim.suffix != ".0" and not is_released(claim) and not is_void(claim):
        return None
    try:
        with following(claim).open("x") as new:
            new.write(f"{HELD} by {socket.gethostname()}, process {os.getpid()}\n")
    except FileExistsError:
        return None
    return following(claim)


def release(claim: Path) -> None:
    with contextlib.suppress(OSError), claim.open("r+") as file:  # needs no space on the disk
        file.write(RELEASED)


class Keeper:
    """The process that renews claims while this process, or a run with `pipe` as its standard input, lives."""

    process = None

    @property
    def pipe(self):
        return self.process.stdin

    def is_alive(self) -> bool:
        """Whether the claims are renewed. The keeper ends if another machine has found one of them void."""
        return self.process is not None and self.process.poll() is None

    def hold(self, file: Path) -> Path | None:
        claim = hold(file)
        if claim and not self.is_alive():
            line = [sys.executable, "-I", "-S", __file__, str(BEAT)]
            # in a session of its own, so that it survives the end of a terminal
            self.process = subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True)
        if claim:
            self.pipe.write(os.fsencode(claim.resolve()) + b"\n")
            self.pipe.flush()
        return claim

    def close(self) -> None:
        if self.process:
            self.pipe.close()


def keep() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the end of the pipe is the only end
        signal.signal(number, signal.SIG_IGN)
    claims: list[Path] = []

    def renew() -> None:
        while True:
            for claim in [*claims]:
                with contextlib.suppress(OSError):
                    lost = following(
                        claim
                    ).exists()  # before the next line: a successor may follow a release
                    if is_released(claim):
                        claims.remove(claim)
                    elif lost:
                        os._exit(1)
                    else:
                        os.utime(claim)
            time.sleep(float(sys.argv[1]))

    threading.Thread(target=renew, daemon=True).start()
    for line in sys.stdin.buffer:
        claims.append(Path(os.fsdecode(line.rstrip(b"\n"))))
    for claim in claims:
        release(claim)


if __name__ == "__main__":
    keep()
