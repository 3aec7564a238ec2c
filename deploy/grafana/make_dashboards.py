#!/usr/bin/env python3
"""Writes the dashboards of this folder, one JSON file each. Run it after a change here and commit what it writes.

    make_dashboards.py            write
    make_dashboards.py --check    say which files are not what this would write, and end with 1

A counter's series begins with its first event, not with 0, so increase() alone never sees that event: GROWTH adds it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphDrawStyle,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).resolve().parent
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 12, 8

MIB, GIB, DAY = 1 << 20, 1 << 30, 86_400

RANKS = 'run=~"$run", rank=~"$rank"'
RUN_QUERY = 'label_values({__name__=~"msprobe_(nan_tensors_total|last_complete_step|watched_value)"}, run)'
RANK_QUERY = (
    'label_values({__name__=~"msprobe_(nan_tensors_total|last_complete_step|watched_value)", run=~"$run"}, rank)'
)


def growth(series: str, window: str = "$__rate_interval") -> str:
    return f"((increase({series}[{window}]) and {series} offset {window}) or {series})"


def query(expression: str, legend: str = "", instant: bool = False) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(expression).legend_format(legend or "__auto").datasource(SOURCE)
    return built.instant().format(PromQueryFormat.TABLE) if instant else built.range()


def above(warning: float | None, bad: float | None = None) -> dashboard.ThresholdsConfig:
    """Green below the one, yellow from there on, red from the other on; each may be missing."""
    steps = [(None, "green"), (warning, "yellow"), (bad, "red")]
    return thresholds([step for step in steps if step[0] is not None or step[1] == "green"])


def below(warning: float, bad: float) -> dashboard.ThresholdsConfig:
    return thresholds([(None, "red"), (bad, "yellow"), (warning, "green")])


def thresholds(steps: list[tuple[float | None, str]]) -> dashboard.ThresholdsConfig:
    built = [Threshold(value, color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(built)


def lines(
    title: str,
    unit: str,
    description: str,
    *queries: tuple[str, str],
    bars: bool = False,
    limits: dashboard.ThresholdsConfig | None = None,
) -> timeseries.Panel:
    """limits: drawn as lines, where the alerts have theirs."""
    panel = timeseries.Panel().title(title).description(description).unit(unit).datasource(SOURCE)
    panel = panel.span(WIDTH).height(HEIGHT).min(0) if unit != "none" else panel.span(WIDTH).height(HEIGHT)
    panel = panel.legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True))
    if limits is not None:
        style = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED)
        panel = panel.thresholds(limits).thresholds_style(style)
    if bars:
        panel = panel.draw_style(GraphDrawStyle.BARS).fill_opacity(60)
    for letter, (expression, legend) in zip("ABCDEF", queries, strict=False):
        panel = panel.with_target(query(expression, legend).ref_id(letter))
    return panel


def number(title: str, unit: str, description: str, expression: str, limits: dashboard.ThresholdsConfig) -> stat.Panel:
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(SOURCE)
        .span(6)
        .height(4)
        .graph_mode(BigValueGraphMode.NONE)
        .thresholds(limits)
    )
    return panel.with_target(query(expression).ref_id("A"))


def rows(title: str, description: str, expression: str, hidden: tuple[str, ...], value: str) -> table.Panel:
    panel = (
        table.Panel().title(title).description(description).datasource(SOURCE).span(24).height(HEIGHT).show_header(True)
    )
    panel = panel.with_target(query(expression, instant=True).ref_id("A"))
    for name in ("Time", "__name__", *hidden):
        panel = panel.override_by_name(name, [DynamicConfigValue("custom.hidden", True)])
    return panel.override_by_name("Value", [DynamicConfigValue("displayName", value)])


def variable(name: str, label: str, expression: str) -> dashboard.QueryVariable:
    built = dashboard.QueryVariable(name).label(label).query(expression).datasource(SOURCE)
    return built.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).multi(True).include_all(True).all_value(".*")


def begin(title: str, uid: str, description: str, by_rank: bool) -> dashboard.Dashboard:
    board = dashboard.Dashboard(title).uid(uid).description(description).tags(["msprobe"]).readonly().refresh("30s")
    board = board.time("now-3h", "now").timezone("browser")
    board = board.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    if by_rank:
        board = board.with_variable(variable("run", "Run", RUN_QUERY)).with_variable(
            variable("rank", "Rank", RANK_QUERY)
        )
    return board


def overflow() -> dashboard.Dashboard:
    producers = f"msprobe_overflow_producers_total{{{RANKS}}}"
    grown = growth(producers)

    def produced(kind: str) -> str:
        return f'msprobe_overflow_producers_total{{{RANKS}, kind="{kind}"}}'

    board = begin(
        "msprobe: overflow",
        "msprobe-overflow",
        "Where NaN and infinity began, by run, rank and group of modules; msprobe-client overflow RUN names tensors.",
        True,
    )
    for panel in (
        number(
            "NaN producers",
            "short",
            "Since the server began.",
            f"sum({produced('nan')}) or vector(0)",
            above(None, 1),
        ),
        number("Inf producers", "short", "Since the server began.", f"sum({produced('inf')}) or vector(0)", above(1)),
        number(
            "Ranks with an overflow",
            "short",
            "Of the runs chosen.",
            f"count(msprobe_overflow_first_step{{{RANKS}}}) or vector(0)",
            above(None, 1),
        ),
        number(
            "Earliest step",
            "none",
            "Of the first overflow of any rank.",
            f"min(msprobe_overflow_first_step{{{RANKS}}})",
            above(None, 0),
        ),
        lines(
            "By run",
            "short",
            "Producers in each interval.",
            (f"sum by (run, kind) ({grown})", "{{run}} {{kind}}"),
            bars=True,
        ),
        lines(
            "By rank",
            "short",
            "Producers in each interval.",
            (f"sum by (run, rank) ({grown})", "{{run}} {{rank}}"),
            bars=True,
        ),
        lines(
            "By group of modules",
            "short",
            "Numbers in module names are *: one group for all layers.",
            (f"sum by (module_group) ({grown})", "{{module_group}}"),
            bars=True,
        ),
        lines(
            "Tensors that are not finite",
            "short",
            "All of them: what makes NaN and infinity, and what passes it on.",
            (f"sum by (run) ({growth(f'msprobe_nan_tensors_total{{{RANKS}}}')})", "{{run}} NaN"),
            (f"sum by (run) ({growth(f'msprobe_inf_tensors_total{{{RANKS}}}')}) or vector(0)", "{{run}} Inf"),
            bars=True,
        ),
        rows(
            "First producer of each rank",
            "The step is the value: the rank whose step is least went wrong first.",
            f"sort(msprobe_overflow_first_step{{{RANKS}}})",
            ("instance", "job"),
            "step",
        ),
    ):
        board = board.with_panel(panel)
    return board


def ingest() -> dashboard.Dashboard:
    def rate(name: str, by: str = "") -> str:
        total = f"rate({name}[$__rate_interval])"
        return f"sum by ({by}) ({total})" if by else f"sum({total})"

    def events(name: str, by: str) -> str:
        return f"sum by ({by}) ({growth(name)}) or vector(0)"

    def quantile(share: str) -> str:
        return f"histogram_quantile({share}, sum by (le) (rate(msprobe_ingest_ack_seconds_bucket[$__rate_interval])))"

    board = begin(
        "msprobe: ingest health",
        "msprobe-ingest",
        "Whether servers keep up with what is sent, and with their disks.",
        False,
    )
    for panel in (
        number(
            "Open sessions",
            "short",
            "Capturing processes that are connected or awaited.",
            "sum(msprobe_sessions_open)",
            above(4096),  # --max_sessions of one server, by default
        ),
        number(
            "Records a second",
            "short",
            "Entries of dump.json.",
            rate("msprobe_ingest_records_total"),
            above(None),
        ),
        number(
            "Free disk",
            "bytes",
            "The least of all servers.",
            "min(msprobe_disk_free_bytes)",
            below(20 * GIB, 5 * GIB),
        ),
        number(
            "Refusing",
            "none",
            "Servers that take nothing new: their disk is full or failed.",
            "sum(msprobe_store_refusing)",
            above(None, 1),
        ),
        number(
            "Certificates",
            "s",
            "Until the first of them expires; nothing without TLS.",
            "min(msprobe_certificate_expiry_timestamp_seconds - time())",
            below(14 * DAY, 2 * DAY),
        ),
        number(
            "Servers out of reach",
            "short",
            "Of a cluster, as the others see it.",
            "max(msprobe_shards_unreachable) or vector(0)",
            above(None, 1),
        ),
        number(
            "Files and connections",
            "percentunit",
            "Open, of those that a server may have; the greatest of all servers.",
            "max(msprobe_process_open_files / msprobe_process_max_files)",
            above(0.5, 0.8),
        ),
        number(
            "Up since",
            "dateTimeFromNow",
            "The server that began last.",
            "1000 * max(msprobe_process_start_time_seconds)",
            above(None),
        ),
        lines(
            "Records", "short", "Stored a second.", (rate("msprobe_ingest_records_total", "instance"), "{{instance}}")
        ),
        lines("Bytes in", "Bps", "Batches and payloads.", (rate("msprobe_ingest_bytes_total", "kind"), "{{kind}}")),
        lines(
            "Acknowledgement",
            "s",
            "From a batch's arrival until it is durable.",
            (quantile("0.5"), "half within"),
            (quantile("0.99"), "99 of 100 within"),
            limits=above(1, 5),
        ),
        lines(
            "Waiting with agents",
            "bytes",
            "Captured and not durable yet, in memory and spools, as agents say; the sum of each run.",
            ("sum by (run) (msprobe_agent_queue_bytes)", "{{run}}"),
            limits=above(256 * MIB),
        ),
        lines(
            "Lag of ranks",
            "s",
            "Since each rank's last complete step; the greatest of each run.",
            ("max by (run) (time() - msprobe_last_step_timestamp_seconds)", "{{run}}"),
            limits=above(1800),
        ),
        lines(
            "Steps behind",
            "short",
            "Of each run: between its foremost and its last rank.",
            (
                "max by (run) (msprobe_last_complete_step) - min by (run) (msprobe_last_complete_step)",
                "{{run}}",
            ),
        ),
        lines(
            "Steps",
            "short",
            "Ended in each interval.",
            (events("msprobe_steps_total", "state"), "{{state}}"),
            bars=True,
        ),
        lines(
            "Lost by agents",
            "short",
            "Fragments, by reason.",
            (events("msprobe_gap_fragments_total", "reason"), "{{reason}}"),
            bars=True,
            limits=above(None, 1),
        ),
        lines(
            "Refused and denied",
            "short",
            "Messages refused by code, calls without the token or the role, sessions lost.",
            (events("msprobe_ingest_refused_total", "code"), "{{code}}"),
            (events("msprobe_calls_denied_total", "reason"), "{{reason}}"),
            (events("msprobe_sessions_lost_total", "instance"), "session lost"),
            bars=True,
            limits=above(10),
        ),
        lines(
            "Files",
            "bytes",
            "Of the store, by what they hold.",
            ("sum by (family) (msprobe_store_bytes)", "{{family}}"),
        ),
        lines(
            "RocksDB",
            "short",
            "Whether it holds writers back (1 slowed, 2 stopped), and how many writes wait for a sync.",
            ("max(msprobe_store_write_stall)", "write stall"),
            ("sum(msprobe_sync_waiting)", "writes that wait for a sync"),
            limits=above(1, 2),
        ),
        lines(
            "Waiting to be written",
            "bytes",
            "Write buffers, and what compactions have to rewrite.",
            ("sum(msprobe_write_buffer_bytes)", "write buffers"),
            ("sum(msprobe_store_pending_compaction_bytes)", "compactions"),
        ),
        lines("Steps to tile", "short", "Ended, and still rows.", ("sum(msprobe_tiling_waiting_steps)", "steps")),
        rows("Servers", "What runs where.", "msprobe_build_info", ("job", "Value"), "up"),
    ):
        board = board.with_panel(panel)
    return board


def training() -> dashboard.Dashboard:
    watched = f"msprobe_watched_value{{{RANKS}}}"
    board = begin(
        "msprobe: training trends",
        "msprobe-training",
        "Statistics that msprobe-server --watch names (loss, loss scale, norm of a gradient), and the pace of steps.",
        True,
    )
    for panel in (
        lines(
            "Watched statistics",
            "none",
            "The last value of each rank.",
            (watched, "{{run}} {{rank}} {{watch}}"),
        ),
        lines(
            "Spread between ranks",
            "none",
            "Greatest less least value of each watched statistic: data-parallel ranks should agree on some of them.",
            (f"max by (run, watch) ({watched}) - min by (run, watch) ({watched})", "{{run}} {{watch}}"),
        ),
        lines(
            "Last complete step",
            "none",
            "While the rank's session is open.",
            (f"msprobe_last_complete_step{{{RANKS}}}", "{{run}} {{rank}}"),
        ),
        lines(
            "Pace",
            "none",
            "Steps a minute, of the numbers of the steps that are captured.",
            (f"60 * deriv(msprobe_last_complete_step{{{RANKS}}}[$__rate_interval])", "{{run}} {{rank}}"),
        ),
        lines(
            "Steps looked at for these panels",
            "short",
            "skipped: more had ended than were looked at.",
            (f"sum by (result) ({growth('msprobe_watched_steps_total')})", "{{result}}"),
            bars=True,
        ),
    ):
        board = board.with_panel(panel)
    return board


DASHBOARDS = {"overflow.json": overflow, "ingest.json": ingest, "training.json": training}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for name, make in DASHBOARDS.items():
        text = JSONEncoder(sort_keys=True, indent=1).encode(make().build()) + "\n"
        path = FOLDER / name
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            print(f"{path} is not what make_dashboards.py writes")
            stale += 1
        elif not check:
            path.write_text(text, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
