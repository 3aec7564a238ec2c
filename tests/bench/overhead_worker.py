#!/usr/bin/env python3
"""One case of the overhead table in one process; prints one line of JSON. Runs under this tool or mindstudio-probe.

Plain and captured steps alternate A B B A in this process, which was warmed up before the tool was imported. Its main
thread keeps one core; its other threads, the server and the interrupts of the disk that it writes to have the others.
Mode blocks: blocks of steps alternate so, in one process a rank; steps follow without a wait, and threads run where
the system lets them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from typing import Any

RANK_SECONDS = 600  # that one rank waits for another
READERS = 8  # the caller's thread and those of reading_threads, 7 by default


def build(options: argparse.Namespace) -> tuple[Any, Callable[[], None]]:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(1234)
    heads = options.hidden // 64
    config = Qwen2Config(
        vocab_size=32000,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 38 // 7,
        num_hidden_layers=options.layers,
        num_attention_heads=heads,
        num_key_value_heads=2 if heads % 2 == 0 else 1,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config).train(options.train)
    generator = torch.Generator().manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def forward() -> None:
        tokens = torch.randint(0, 32000, (1, options.tokens), generator=generator)
        with torch.no_grad():
            model(tokens)

    def training() -> None:
        tokens = torch.randint(0, 32000, (1, options.tokens), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()

    return model, training if options.train else forward


def write_config(options: argparse.Namespace) -> str:
    section: dict[str, Any] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": options.summary}
    config: dict[str, Any] = {"task": options.task, "dump_path": str(options.scratch / "out"), "rank": [], "step": []}
    config |= {"level": options.level, options.task: section}
    if options.server:
        config["server"] = options.server
    if not options.stacks:
        config["extra_info"] = False
    if not options.edges:
        config["edges"] = "off"
    path = options.scratch / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def server_cpu(marks: list[str]) -> float:
    """CPU seconds of the servers whose command line has one of these paths."""
    total = 0.0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"msprobe-server" not in words[0] or not any(m.encode() in word for m in marks for word in words):
                continue
            total += time.clock_gettime(~int(process.name) << 3 | 2)  # its clock, as clock_getcpuclockid(3) makes it
        except OSError:
            continue
    return total


def reading_cpu() -> float:
    """CPU seconds of the threads that read tensors for the caller (agent/capture/reading/reading_threads.h)."""
    total = 0
    for thread in pathlib.Path("/proc/self/task").iterdir():
        try:
            if (thread / "comm").read_text().startswith("msprobe-read"):
                total += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def interrupts() -> dict[int, int]:
    """How many interrupts of devices each core has taken."""
    lines = pathlib.Path("/proc/interrupts").read_text().splitlines()
    cores = [int(word.removeprefix("CPU")) for word in lines[0].split()]
    taken = dict.fromkeys(cores, 0)
    for line in lines[1:]:
        words = line.split()
        if words[0].rstrip(":").isdigit():
            for core, count in zip(cores, words[1:], strict=False):
                taken[core] += int(count)
    return taken


def disk_core(directory: pathlib.Path) -> int:
    """The core that takes the interrupts of this directory's disk."""
    before = interrupts()
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(64):
            file.write(bytes(4096))
            os.fsync(file.fileno())
    return max(before, key=lambda core: interrupts()[core] - before[core])


def pin(directory: pathlib.Path) -> None:
    """The main thread on the last core that does not serve the disk of `directory`; all other threads on the others."""
    cores = sorted(os.sched_getaffinity(0) - {disk_core(directory)})
    others = os.sched_getaffinity(0) - set(cores[-1:])
    if not cores or not others:
        return
    for path in pathlib.Path("/proc/self/task").iterdir():
        thread = int(path.name)
        os.sched_setaffinity(thread, {cores[-1]} if thread == os.getpid() else others)


def settle(marks: list[str]) -> None:
    """Waits until the server has done all its work, at most 20 s."""
    used = server_cpu(marks)
    for _ in range(40):
        time.sleep(0.5)  # between two looks at the server's CPU time
        before, used = used, server_cpu(marks)
        if used - before <= 0.02:
            return


def status_mib(field: str) -> float:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def bandwidth(cores: int) -> float:
    """Bytes a second that so many cores read at best: of memory or of a cache, whichever is faster."""
    import torch

    best = 0.0
    with ThreadPoolExecutor(cores) as threads:
        for elements in (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 26):
            memory = [torch.ones(elements) for _ in range(cores)]
            sums = max(1, (1 << 24) // elements)

            def read(part: Any, sums: int = sums) -> None:
                for _ in range(sums):
                    part.sum()

            for _ in range(4):
                begun = time.perf_counter()
                list(threads.map(read, memory))
                best = max(best, cores * sums * memory[0].nbytes / (time.perf_counter() - begun))
    return best


def bandwidths() -> dict[str, float]:
    """Of one core, and of all that read a large tensor together."""
    alone = bandwidth(1)
    together = bandwidth(min(READERS, len(os.sched_getaffinity(0))))
    return {"bandwidth": alone, "shared_bandwidth": max(alone, together)}


def bytes_read(debugger: Any) -> dict[str, int]:
    """Since the beginning; of these, in tensors that several cores may read together."""
    counters = debugger._agent.counters()
    return {"bytes_read": counters["tensor_bytes_read"], "bytes_shared": counters["tensor_bytes_shared"]}


class Clocks:
    def __init__(self, marks: list[str]) -> None:
        self._marks = marks
        self.wall, self.thread, self.process = time.perf_counter(), time.thread_time(), time.process_time()
        self.server, self.reading = server_cpu(marks), reading_cpu()

    def since(self) -> dict[str, float]:
        now_wall = time.perf_counter()
        return {
            "wall": now_wall - self.wall,
            "thread": time.thread_time() - self.thread,
            "process": time.process_time() - self.process,
            "server": server_cpu(self._marks) - self.server,
            "reading": reading_cpu() - self.reading,
        }


def is_told(times: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> bool:
    """Whether the steps so far show on which side of the aim their ratio is, or the ratio to half a percent."""
    plain, captured = ([row["wall"] for row in times[kind]] for kind in ("plain", "captured"))
    ratios = [sum(captured[i : i + 2]) / sum(plain[i : i + 2]) for i in range(0, len(plain), 2)]
    middle = statistics.median(ratios)
    spread = 1.4826 * statistics.median(abs(ratio - middle) for ratio in ratios)  # a standard deviation's, if normal
    error = 1.2533 * spread / len(ratios) ** 0.5  # of the median, if normal
    return error <= 0.0025 or abs(middle - options.aim) > 3 * error


def steps(options: argparse.Namespace) -> dict[str, Any]:
    model, step = build(options)
    reads_at = bandwidths()
    for _ in range(4):
        step()
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=write_config(options))
    ours = hasattr(debugger, "wait")
    marks = [str(options.scratch), *([options.server] if options.server else [])]
    out = options.scratch / "out"

    def plain() -> None:
        step()

    def captured() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()
        if options.task == "tensor" and ours:
            debugger.wait(120)  # every payload is at the server

    def timed(body: Callable[[], None], settle: bool) -> dict[str, float]:
        clocks = Clocks([])
        body()
        took = clocks.since()
        if settle:
            if ours:
                debugger.wait(120)
            # Elsewhere all stay, as a program leaves them: ext4 makes a directory slowly where one was just deleted.
            for directory in out.glob("step*") if options.task == "tensor" else ():
                shutil.rmtree(directory, ignore_errors=True)
        return took

    first = timed(captured, True)
    pin(options.scratch)
    timed(captured, True)
    settle(marks)
    times: dict[str, list[dict[str, float]]] = {"plain": [], "captured": []}
    whole = Clocks(marks)
    before = bytes_read(debugger) if ours else {}
    while len(times["plain"]) < options.pairs or (
        len(times["plain"]) < options.max_pairs and not is_told(times, options)
    ):
        for kind in ("plain", "captured", "captured", "plain"):
            times[kind].append(timed(captured if kind == "captured" else plain, kind == "captured"))
    count = len(times["captured"])
    total = whole.since()
    result = {"first": first, "times": times, "whole": total} | reads_at
    if ours:
        counters = debugger._agent.counters()
        result |= {name: (value - before[name]) / count for name, value in bytes_read(debugger).items()}
        result["faults"] = counters["faults"] + counters["fragments_dropped"] + counters["payloads_dropped"]
    return result


def blocks(options: argparse.Namespace) -> dict[str, Any]:
    """Blocks of steps of as many ranks as asked for, each a process; they begin each block together."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(options.ranks)
    ranks, readers = [], []
    for rank in range(options.ranks):
        own = argparse.Namespace(**vars(options) | {"scratch": options.scratch / f"rank{rank}"})
        own.scratch.mkdir()
        reader, writer = context.Pipe(duplex=False)
        ranks.append(context.Process(target=blocks_of_rank, args=(own, barrier, writer), daemon=True))
        ranks[-1].start()
        writer.close()
        readers.append(reader)
    found = []
    while readers:
        done: Any = wait(readers)[0]
        found.append(done.recv())  # EOFError: the rank has died, and the others would wait for it
        readers.remove(done)
    for process in ranks:
        process.join()
    return {"ranks": found}


def blocks_of_rank(options: argparse.Namespace, barrier: Any, result_to: Any) -> None:
    """Before each block, one step that is not measured: it leaves work behind as the block's last step does."""
    model, step = build(options)
    for _ in range(4):
        step()
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=write_config(options))
    marks = [str(options.scratch)]

    def captured() -> None:
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    def finish() -> float:
        """Seconds until all files are there."""
        begun = time.perf_counter()
        if hasattr(debugger, "wait"):
            debugger.wait(120)
        took = time.perf_counter() - begun
        settle(marks)
        return took

    captured()
    finish()
    behind: list[float] = []
    times: dict[str, list[dict[str, float]]] = {"plain": [], "captured": []}
    written = 0
    for _ in range(options.pairs):
        for kind, body in (("plain", step), ("captured", captured), ("captured", captured), ("plain", step)):
            barrier.wait(RANK_SECONDS)
            body()
            clocks = Clocks([])
            for _ in range(options.steps):
                body()
            times[kind].append(clocks.since())
            if kind == "captured":
                behind.append(finish())
                out = options.scratch / "out"
                files = {found.st_ino: found.st_blocks * 512 for found in (path.stat() for path in out.rglob("*.pt"))}
                written += sum(files.values())
                for directory in out.glob("step*"):
                    shutil.rmtree(directory, ignore_errors=True)
    captured_steps = 2 * options.pairs * (options.steps + 1)
    result = {"times": times, "pt_mib": written / captured_steps / 2**20, "behind": statistics.median(behind)}
    if hasattr(debugger, "_agent"):
        counters = debugger._agent.counters()
        result["lost"] = counters["faults"] + counters["fragments_dropped"] + counters["payloads_dropped"]
    result_to.send(result)


def peak(options: argparse.Namespace) -> dict[str, Any]:
    """A program's peak memory after this number of steps, with the tool imported at its head or not at all."""
    debugger = None
    if not options.plain:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=write_config(options))
    model, step = build(options)
    for _ in range(options.pairs):
        if debugger is None:
            step()
            continue
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()
    if debugger is not None and hasattr(debugger, "wait"):
        debugger.wait(120)
    return {"peak_mib": status_mib("VmHWM")}


def first(options: argparse.Namespace) -> dict[str, Any]:
    """The first captured step of this process, and plain ones before."""
    model, step = build(options)
    reads_at = bandwidths()
    for _ in range(3):
        step()
    plain = []
    for _ in range(options.pairs):
        clocks = Clocks([])
        step()
        plain.append(clocks.since())
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=write_config(options))
    clocks = Clocks([])
    debugger.start(model=model)
    step()
    debugger.stop()
    debugger.step()
    result = {"plain": plain, "first": clocks.since()} | reads_at
    if hasattr(debugger, "wait"):
        result |= bytes_read(debugger)
        debugger.wait(120)
    return result


def records(options: argparse.Namespace) -> dict[str, Any]:
    """torch.abs of 16 elements, over and over: seconds of the caller's thread a record, in blocks of 1,000."""
    import torch

    torch.set_num_threads(1)
    x = torch.linspace(-1, 1, 16)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=write_config(options))

    def block() -> dict[str, float]:
        clocks = Clocks([])
        for _ in range(1000):
            torch.abs(x)
        return clocks.since()

    block()
    plain = [block() for _ in range(20)]
    debugger.start()
    block()
    pin(options.scratch)
    blocks = [block() for _ in range(options.blocks)]
    debugger.stop()
    debugger.step()
    if hasattr(debugger, "wait"):
        debugger.wait(120)
    return {"plain": plain, "blocks": blocks}


def idle(options: argparse.Namespace) -> None:
    """Steps on request, in a process without the tool or with a stopped debugger."""
    model, step = build(options)
    for _ in range(3):
        step()
    if options.mode == "stopped":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=write_config(options))
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()
        if hasattr(debugger, "wait"):
            debugger.wait(60)
    pin(options.scratch)
    print("READY", file=sys.__stderr__, flush=True)
    for _ in sys.stdin:
        clocks = Clocks([])
        step()
        print(json.dumps(clocks.since()), file=result_stream, flush=True)


MODES = {"steps": steps, "blocks": blocks, "first": first, "peak": peak, "records": records}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="steps", choices=(*MODES, "base", "stopped"))
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--level", default="L1")
    parser.add_argument("--task", default="statistics")
    parser.add_argument("--summary", default="statistics")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--plain", action="store_true", help="peak: without the tool")
    parser.add_argument("--server", default="")
    parser.add_argument("--no-stacks", dest="stacks", action="store_false")
    parser.add_argument("--no-edges", dest="edges", action="store_false")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--max-pairs", type=int, default=0, help="where --pairs do not tell whether --aim is met")
    parser.add_argument("--aim", type=float, default=0, help="a ratio")
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="of a block")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--ranks", type=int, default=1, help="blocks: processes beside each other")
    chosen = parser.parse_args()
    # The tools print on standard output, which is for the result.
    result_stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if chosen.mode in ("base", "stopped"):
        idle(chosen)
    else:
        print(json.dumps(MODES[chosen.mode](chosen)), file=result_stream, flush=True)
