"""Runs programs and shows their output on failure."""

import subprocess


def output_of(*command, cwd=None, timeout=120, env=None):
    """Its stdout; an exit code other than 0 fails with both streams."""
    done = subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
