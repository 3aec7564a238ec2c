"""TensorBoard with one of the two plugins for graph databases, each in an environment of its own: both have the same
name, and TensorBoard does not start with both."""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import urllib.parse

from harness.processes import REPOSITORY, Background, free_port, is_listening

START_S = 60
ANSWER_S = 60
# Plugin -> the variable that names its environment, and where `make` puts it.
ENVIRONMENTS = {
    "tb-graph-ascend": ("MSPROBE_TENSORBOARD", ".tensorboard"),
    "mindstudio-probe": ("MSPROBE_ORACLE", ".oracle"),
}
PREFIX = "/data/plugin/graph_ascend"


def program(plugin):
    """TensorBoard's program in the plugin's environment; it may be missing."""
    variable, folder = ENVIRONMENTS[plugin]
    return pathlib.Path(os.environ.get(variable, REPOSITORY / folder)) / "bin" / "tensorboard"


@dataclasses.dataclass
class TensorBoard:
    plugin: str
    port: int
    connection: http.client.HTTPConnection

    @property
    def newer(self):
        """Whether the plugin is the one of mindstudio-probe 26."""
        return self.plugin == "mindstudio-probe"

    @property
    def page(self):
        return f"http://127.0.0.1:{self.port}/#graph_ascend"

    def get(self, route, **query):
        return self._answer("GET", f"{PREFIX}/{route}?{urllib.parse.urlencode(query)}")

    def post(self, route, body):
        return self._answer("POST", f"{PREFIX}/{route}", json.dumps(body))

    def graphs(self):
        """What it finds in its directory; only then does it answer about them."""
        return self.post("load_meta_dir", None) if self.newer else self.get("load_meta_dir")

    def _answer(self, method, path, body=None):
        """Of JSON what it says; any other text as it is."""
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, f"{method} {path}: {response.status} {text[:2000]}"
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return text


@contextlib.contextmanager
def tensorboard(plugin, logdir, log):
    """Its answers are for one user: the plugins keep what was asked last."""
    port = free_port()
    command = [program(plugin), "--logdir", logdir, "--host", "127.0.0.1", "--port", port, "--load_fast", "false"]
    # The plugin converts dumps with the `msprobe` of PATH: ours.
    path = f"{REPOSITORY / '.venv' / 'bin'}:{os.environ['PATH']}"
    with Background(command, log, PYTHONPATH=None, PATH=path) as process:
        process.wait_for(lambda: is_listening(port), START_S, "TensorBoard listens")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        yield TensorBoard(plugin, port, connection)
        connection.close()
