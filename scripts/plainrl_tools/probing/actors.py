"""A replacement for Ray, for files whose environments live in Ray actors: the actors are objects of this process."""

import contextlib
import copy
import signal
import sys
from types import SimpleNamespace

import torch


class Died(Exception):
    """Raised by an environment where its actor's process would be killed."""


class Actors:
    """Replaces the module ray. A call of an actor has finished when it returns; an actor that dies is created again."""

    def init(self, *args, **options) -> None:
        pass

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1e9}

    def put(self, value):
        return copy.deepcopy(value)

    def get(self, values: list) -> list:
        return values

    def remote(self, **options):
        return lambda made_of: SimpleNamespace(remote=lambda *args: Actor(made_of, args))


class Actor:
    """A handle: actor.method.remote(...) calls the method."""

    def __init__(self, made_of: type, args: tuple):
        self.make = lambda: made_of(*args)
        self.made = self.make()

    def __getattr__(self, name: str):
        def call(*args):
            try:
                with torch.random.fork_rng(devices=[]):  # another process has another generator
                    return getattr(self.made, name)(*args)
            except Died:
                self.made = self.make()
                return call(*args)

        return SimpleNamespace(remote=call)


@contextlib.contextmanager
def actors_here():
    """Within this context `import ray` gives Actors. Signal handlers are restored afterwards."""
    ray, handler = sys.modules.get("ray"), signal.getsignal(signal.SIGTERM)
    sys.modules["ray"] = Actors()
    try:
        yield
    finally:
        del sys.modules["ray"]
        if ray:
            sys.modules["ray"] = ray
        signal.signal(signal.SIGTERM, handler)
