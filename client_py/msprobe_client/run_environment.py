"""What a run's processes ran in, as they said when they began, and where two runs differ in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from msprobe_client import decode, model
from msprobe_client.proto import environment_pb2
from msprobe_client.shown_values import shown_option

# Facts that say where and under which name a run ran; two runs of the same program differ in them.
PLACES = frozenset(
    (
        "config.dump_path", "config.run", "config.server", "env.MASTER_ADDR", "env.MASTER_PORT", "env.MSPROBE_RUN",
        "env.MSPROBE_SERVER", "env.SLURM_JOB_ID", "env.SLURM_NODEID", "env.TORCHELASTIC_RUN_ID", "host", "process",
        "started",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """One rank's process."""

    rank: model.Rank
    host: str
    process_id: int
    started: datetime
    program: str
    agent_version: str
    framework_version: str
    settings: model.CaptureSettings
    variables: Mapping[str, str]  # of the environment, as far as the agent's allow list goes
    devices: tuple[str, ...]  # "8 x NVIDIA H100 80GB HBM3"
    commit: str = ""  # of the git checkout that the program lies in; "": it lies in none
    branch: str = ""

    def facts(self) -> dict[str, str]:
        """Everything as name -> text; "env.NAME" is a variable, "config.FIELD" a field of the configuration.

        A secret is "hidden": agents of earlier versions left some in.
        """
        settings = self.settings
        found = {
            "host": self.host,
            "process": str(self.process_id) if self.process_id else "",  # an imported dump has none
            "started": self.started.isoformat(timespec="seconds"),
            "program": self.program,
            "framework": f"{settings.framework} {self.framework_version}".strip(),
            "agent": self.agent_version,
            "devices": ", ".join(self.devices),
            "git.commit": self.commit,
            "git.branch": self.branch,
        }
        found |= {name: value for name, value in _flat("config", _document(settings.config_json)) if value}
        found |= {"config.task": settings.task, "config.level": settings.level}
        found["config.summary_mode"] = settings.summary_mode
        found |= {f"env.{name}": value for name, value in self.variables.items()}
        return {name: str(shown_option(name, value)) for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the ranks that share it. golden: the other run's; None where there is no other run."""

    name: str
    value: str  # "": they have none
    golden: str | None
    ranks: tuple[model.Rank, ...]


def process(message: environment_pb2.ProcessEnvironment) -> ProcessEnvironment:
    return ProcessEnvironment(
        rank=decode.rank(message.rank),
        host=message.host,
        process_id=message.process_id,
        started=datetime.fromtimestamp(message.started_unix_us / 1e6, timezone.utc),
        program=message.program,
        agent_version=message.agent_version,
        framework_version=message.framework_version,
        settings=decode.settings(message.settings),
        variables={variable.name: variable.value for variable in message.environment},
        devices=tuple(message.devices),
        commit=message.checkout.commit,
        branch=message.checkout.branch,
    )


def facts(run: Iterable[ProcessEnvironment]) -> list[Fact]:
    """Of one run, in the order of its first rank; a fact that ranks have differently stands once for each value."""
    return _joined((each.rank, name, value, None) for each in run for name, value in each.facts().items())


def differences(
    run: Sequence[ProcessEnvironment], golden: Sequence[ProcessEnvironment], *, places: bool = False
) -> tuple[list[Fact], list[model.Rank]]:
    """What ranks of one run have otherwise than the same ranks of the other, and ranks that one of them lacks.

    places: also where and under which name the runs ran. Processes without a rank are paired in order.
    """
    pairs, alone = _pairs(run, golden)

    def found() -> Iterable[tuple[model.Rank, str, str, str | None]]:
        for one, other in pairs:
            mine, theirs = one.facts(), other.facts()
            for name in dict.fromkeys((*mine, *theirs)):
                if mine.get(name) != theirs.get(name) and (places or name not in PLACES):
                    yield one.rank, name, mine.get(name, ""), theirs.get(name, "")

    return _joined(found()), alone


def _pairs(
    run: Sequence[ProcessEnvironment], golden: Sequence[ProcessEnvironment]
) -> tuple[list[tuple[ProcessEnvironment, ProcessEnvironment]], list[model.Rank]]:
    def keyed(side: Sequence[ProcessEnvironment]) -> dict[tuple[str, int], ProcessEnvironment]:
        processes = [each for each in side if each.rank.kind == "proc"]
        ranks = {("rank", each.rank.number): each for each in side if each.rank.kind == "rank"}
        return {**ranks, **{("proc", at): each for at, each in enumerate(processes)}}

    mine, theirs = keyed(run), keyed(golden)
    pairs = [(each, theirs[key]) for key, each in mine.items() if key in theirs]
    alone = [side[key].rank for side, other in ((mine, theirs), (theirs, mine)) for key in side if key not in other]
    return pairs, alone


def _joined(rows: Iterable[tuple[model.Rank, str, str, str | None]]) -> list[Fact]:
    ranks: dict[tuple[str, str, str | None], list[model.Rank]] = {}
    order: dict[str, int] = {}
    for rank, *key in rows:
        name, value, golden = key
        order.setdefault(str(name), len(order))
        ranks.setdefault((str(name), str(value), golden), []).append(rank)
    found = [Fact(*key, tuple(of)) for key, of in ranks.items()]
    return sorted(found, key=lambda fact: order[fact.name])


def _document(text: str) -> object:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return text


def _flat(path: str, node: object) -> Iterable[tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _flat(f"{path}.{key}", value)
    else:
        yield path, node if isinstance(node, str) else json.dumps(node)
