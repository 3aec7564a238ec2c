"""TensorBoard with the plugins of an environment, for as long as a test looks at it."""

import contextlib
import pathlib
import urllib.error
import urllib.request

from harness.processes import Background, free_port


@contextlib.contextmanager
def tensorboard(python, logs, log):
    """Its address. python: of the environment; logs: the directory it shows; log: takes what it says."""
    port = free_port()
    program = pathlib.Path(python).parent / "tensorboard"
    command = [program, "--logdir", logs, "--port", port, "--host", "127.0.0.1", "--load_fast", "false"]
    with Background(command, log, PYTHONPATH=None, OMP_NUM_THREADS=1) as running:
        address = f"http://127.0.0.1:{port}"

        def answers():
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{address}/data/environment", timeout=5).close()
                return True
            return False

        running.wait_for(answers, 120, "TensorBoard answers")
        yield address
