"""Runs as graphs of Model Explorer, with their data. Model Explorer imports this; it is no dependency of ours.

A file NAME.msprobe says which run: {"target": "tuesday", "golden": "monday", "step": 3, "rank": 0, "overflow": true}.
With "fuzzy": true calls match whatever their numbers are. Needed is target alone, a run or a dump directory. The server
is "server", else $MSPROBE_SERVER.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dacite import Config, from_dict
from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs, node_data_builder
from model_explorer.graph_builder import GraphCollection
from model_explorer.node_data_provider import (
    GetConfigEditorsResult,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)

from msprobe_client.analysis_client import is_path
from msprobe_client.client import Client
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.scratch import scratch_directory

SUFFIX = "msprobe"
_FIELDS = {"server": str, "target": str, "golden": str, "step": int, "rank": int, "overflow": bool, "fuzzy": bool}


def question(path: Path) -> dict[str, Any]:
    """What a file asks for. InvalidArgument: it is no such file; says the field."""
    try:
        asked = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}") from None
    if not isinstance(asked, dict) or not asked.get("target"):
        raise InvalidArgument(f'{path}: it needs "target", a run or a dump directory')
    for name, value in asked.items():
        kind = _FIELDS.get(name)
        if kind is None:
            raise InvalidArgument(f"{path}: there is no field {name!r}; there are {', '.join(_FIELDS)}")
        if type(value) is not kind:
            raise InvalidArgument(f"{path}: {name} is {value!r}; it must be {kind.__name__}")
    return asked


@contextmanager
def files_of(path: Path) -> Iterator[Path]:
    """A directory with the files of Model Explorer for the run that a file names."""
    asked = question(path)
    sides = [asked["target"], *([asked["golden"]] if "golden" in asked else [])]
    with ExitStack() as cleanup:
        scratch = Path(cleanup.enter_context(scratch_directory()))
        if "server" in asked:
            client = Client(asked["server"])
        elif all(map(is_path, sides)):
            client = Client(data_dir=scratch / "data", create=True)
        else:
            client = Client()
        cleanup.enter_context(client)
        client.model_explorer(
            *(sides[0], scratch / "files", *sides[1:]),
            overflow=asked.get("overflow", False),
            matching="fuzzy" if asked.get("fuzzy") else "exact",
            steps=[(asked["step"], asked["step"])] if "step" in asked else (),
            ranks=[asked["rank"]] if "rank" in asked else (),
        )
        yield scratch / "files"


def _made(kind: Any, said: Any) -> Any:
    """Its classes say that a value is a number; its page takes words, too."""
    return from_dict(kind, said, Config(check_types=False))


class MsprobeAdapter(Adapter):  # type: ignore[misc]
    metadata = AdapterMetadata(
        id="msprobe",
        name="msprobe run",
        description="The graph of a run of msprobe-server, or of a dump directory",
        fileExts=[SUFFIX],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        del settings
        with files_of(Path(model_path)) as files:
            sides = [files / name for name in ("target.json", "golden.json")]
            graphs = [_made(GraphCollection, json.loads(side.read_text())) for side in sides if side.exists()]
        return {"graphCollections": graphs}


class MsprobeData(NodeDataProvider):  # type: ignore[misc]
    metadata = NodeDataProviderMetadata(
        id="msprobe_data",
        name="msprobe statistics",
        description="Statistics, verdicts, metrics and overflow levels of the run",
        icon="query_stats",
        filter=NodeDataProviderFilter(modelFileExts=[SUFFIX]),
    )

    def get_config_editors(self, provider_id: str) -> GetConfigEditorsResult:
        del provider_id
        return GetConfigEditorsResult(configEditors=[])

    def run(
        self, provider_id: str, model_path: str, graph_id: str, config_values: dict[str, Any], graph: Any
    ) -> NodeDataProviderResult:
        del provider_id, config_values, graph
        try:
            with files_of(Path(model_path).expanduser()) as files:
                found = [json.loads(path.read_text()).get(graph_id) for path in sorted(files.glob("node_data_*.json"))]
        except MsprobeError as error:
            return NodeDataProviderResult(error=str(error))
        return NodeDataProviderResult(
            result=[_made(node_data_builder.GraphNodeData, data) for data in found if data is not None]
        )
