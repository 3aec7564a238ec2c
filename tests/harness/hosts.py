"""Network namespaces as hosts on one cable."""

import contextlib
import os
import shutil
import uuid

import pytest

from harness.fire import as_root


class Host:
    """A namespace with an address of its own: 10.213.9.{number}."""

    def __init__(self, tag, number):
        self.name, self.ip = f"msp{tag}{number}", f"10.213.9.{number}"

    def within(self):
        return ("ip", "netns", "exec", self.name)

    def answers(self, ip, port):
        """Whether this host reaches a port of another one."""
        return as_root(*self.within(), "bash", "-c", f"exec 3<>/dev/tcp/{ip}/{port}").returncode == 0


@contextlib.contextmanager
def hosts(count):
    """Hosts that reach each other through a switch. Skips where namespaces cannot be made."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2's ip")
    tag = uuid.uuid4().hex[:5]
    switch = f"msp{tag}s"
    made = [Host(tag, number) for number in range(1, count + 1)]
    commands = [f"ip netns add {switch}", f"ip -n {switch} link add hub type bridge", f"ip -n {switch} link set hub up"]
    for host in made:
        cable = f"c{host.ip.rpartition('.')[2]}"
        commands += [
            f"ip netns add {host.name}",
            f"ip -n {switch} link add {cable} type veth peer name cable netns {host.name}",
            f"ip -n {switch} link set {cable} master hub up",
            f"ip -n {host.name} address add {host.ip}/24 dev cable",
            f"ip -n {host.name} link set cable up",
            f"ip -n {host.name} link set lo up",
        ]
    try:
        for command in commands:
            done = as_root(*command.split())
            if done.returncode != 0:
                pytest.skip(f"`{command}` is not allowed here: {done.stderr.strip()}")
        yield made
    finally:
        for name in (switch, *(host.name for host in made)):
            as_root("ip", "netns", "delete", name)
