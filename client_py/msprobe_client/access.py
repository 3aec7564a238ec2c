"""A client's credentials for a server, and its check of the server.

The files are those that an agent names, by the same variables. Imports nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.address import is_of_this_machine
from msprobe_client.errors import InvalidArgument

if TYPE_CHECKING:
    import grpc

SYSTEM = "system"
_VARIABLES = {
    "ca": "MSPROBE_SERVER_CA",
    "cert": "MSPROBE_SERVER_CERT",
    "key": "MSPROBE_SERVER_KEY",
    "token_file": "MSPROBE_SERVER_TOKEN_FILE",
}


@dataclass(frozen=True)
class Access:
    """ca: PEM file with the authority of the server's certificate, which makes the connection TLS; "system": this
    machine's roots. cert and key: PEM, for a server that asks for them. token_file: its first word is the token. For a
    path that is None the environment's is taken; an empty variable counts as none.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token_file: str | None = None

    def resolved(self) -> Access:
        """A copy with the environment's paths in place of None; InvalidArgument for paths that do not go together."""
        found = {name: getattr(self, name) or os.environ.get(variable) or None for name, variable in _VARIABLES.items()}
        access = Access(**found)
        if (access.cert is None) != (access.key is None):
            raise InvalidArgument("a certificate and its key go together: give cert and key, or neither")
        if access.cert is not None and access.ca is None:
            raise InvalidArgument("cert needs ca, the file with the authority of the server's certificate")
        return access

    def channel(self, target: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """Channel of a resolved Access. The token is read at each call; InvalidArgument if others could read it on its
        way.
        """
        import grpc

        if self.token_file is not None and self.ca is None and not is_of_this_machine(target):
            raise InvalidArgument(
                f"the token of {self.token_file} would go to {target} readable by all on the way; give --ca (ca, "
                "MSPROBE_SERVER_CA), the file with the authority of that server's certificate, or leave out the token"
            )
        if self.ca is None or target.startswith("unix:"):
            channel = grpc.insecure_channel(target, options=options)
        else:
            self._check_files()
            credentials = grpc.ssl_channel_credentials(
                root_certificates=None if self.ca == SYSTEM else _read("ca", self.ca),
                private_key=_read("key", self.key) if self.key else None,
                certificate_chain=_read("cert", self.cert) if self.cert else None,
            )
            channel = grpc.secure_channel(target, credentials, options=options)
        if self.token_file is None:
            return channel
        self.token()
        from msprobe_client.bearer import Bearer

        return grpc.intercept_channel(channel, Bearer(self.token))

    def _check_files(self) -> None:
        """gRPC says of a file that it does not understand only that the server cannot be reached."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None and self.ca != SYSTEM:
            _read("ca", self.ca)
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError:
                raise InvalidArgument(
                    f"ca {self.ca} is no certificate; it should be a PEM file with the authority of the server's"
                ) from None
        if self.cert is not None and self.key is not None:
            for name, path in ("cert", self.cert), ("key", self.key):
                _read(name, path)
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except ssl.SSLError:
                raise InvalidArgument(
                    f"cert {self.cert} and key {self.key} are no certificate with its key; both should be PEM files, "
                    "the key's without a password"
                ) from None

    def token(self) -> str:
        assert self.token_file is not None
        words = _read("token_file", self.token_file).decode(errors="replace").split()
        if not words:
            raise InvalidArgument(f"token_file {self.token_file} is empty; it should hold the token")
        return words[0]


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{name} {path} cannot be read: {error.strerror}") from None
