"""Certificates for tests: an authority and certificates that it signs, by openssl."""

import subprocess


def _openssl(*arguments, cwd):
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


class Authority:
    """A certificate authority and the certificates that it signs."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        subject = ["-subj", f"/CN={directory.name}"]
        _openssl(
            *"req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem".split(), *subject, cwd=directory
        )
        self.ca = directory / "ca.pem"

    def sign(self, name, days=2):
        """Certificate and key of this machine as a host; days -1: valid until yesterday."""
        at = self.directory
        _openssl(*f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}".split(), cwd=at)
        (at / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        signing = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -out {name}.pem"
        _openssl(*signing.split(), "-extfile", "names", cwd=at)
        return at / f"{name}.pem", at / f"{name}.key"
