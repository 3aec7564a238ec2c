"""Servers that are shards of one cluster."""

import contextlib
import functools
import os
import signal

from msprobe_client import Client

from harness.processes import external_server


class Cluster:
    """Servers that know each other, on sockets; each can be killed and started again."""

    def __init__(self, sockets, data, *flags, size=3):
        self.addresses = [f"unix:{sockets}/s{i}" for i in range(size)]
        self._sockets, self._data, self._flags = sockets, data, flags
        self._servers = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        for i in range(len(self.addresses)):
            self.start(i)
        for i, address in enumerate(self.addresses):
            self._servers[i].wait_for(functools.partial(self._sees_all, address), 30, "the servers reach each other")
        return self

    @staticmethod
    def _sees_all(address):
        with Client(address) as client:
            return all(shard.here or shard.reachable for shard in client.server_info().shards)

    def __exit__(self, *_):
        self._stack.close()

    def start(self, i):
        flags = [f"--shards={','.join(self.addresses)}", f"--this_shard={self.addresses[i]}", *self._flags]
        server = external_server(self._sockets / f"s{i}", self._data / f"s{i}", self._data / f"s{i}.log", *flags)
        self._servers[i] = self._stack.enter_context(server)

    def kill(self, i):
        self._servers[i].kill()

    def stop(self, i):
        os.kill(self._servers[i].process.pid, signal.SIGTERM)
        self._servers[i].process.wait(30)

    def log(self, i):
        return (self._data / f"s{i}.log").read_text()
