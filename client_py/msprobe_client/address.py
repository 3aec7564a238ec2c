"""Addresses of servers, as users write them."""

from __future__ import annotations

import re
from pathlib import Path

from msprobe_client.errors import InvalidArgument

ENVIRONMENT = "MSPROBE_SERVER"
# sizeof(sockaddr_un.sun_path) less the terminating zero.
UNIX_PATH_MAX = 107
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_ALLOWED = "write host:port or unix:/path/of/socket"


def target_of(address: str) -> str:
    """The gRPC target of an address; InvalidArgument names the address and the allowed forms. Several addresses with
    commas between are servers of one cluster; the first is taken, because each answers for all.
    """
    address = str(address).partition(",")[0].strip()
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if path.startswith("//"):
            path = "/" + path.lstrip("/")
        if not path:
            raise InvalidArgument(f"server address {address!r} has no path: {_ALLOWED}")
        if len(str(Path(path))) > UNIX_PATH_MAX:
            raise InvalidArgument(f"server address {address!r}: a socket's path holds at most {UNIX_PATH_MAX} bytes")
        return f"unix:{path}"
    match = _HOST_PORT.fullmatch(address)
    if match is None:
        raise InvalidArgument(f"server address {address!r} is not understood: {_ALLOWED}")
    if not 0 < int(match["port"]) < 2**16:
        raise InvalidArgument(f"server address {address!r}: the port must be 1 to 65535")
    return address


def is_of_this_machine(target: str) -> bool:
    """Whether a target is on this machine: a socket, "localhost", or a literal of loopback."""
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host.lower() == "localhost":
        return True
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # any name may lead anywhere
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
