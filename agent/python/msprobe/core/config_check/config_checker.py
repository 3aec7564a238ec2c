"""Packs what a training run was configured with, for ``msprobe config_check -c``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.errors import MsprobeError
from msprobe._common.with_client import with_client
from msprobe.core.config_check._framework import framework_of
from msprobe.core.config_check._patches import Patches

# A pack that is older than this process is of an earlier run.
_BEGAN = time.time()


class ConfigChecker:
    """A pack of environment, packages, scripts, and of a model's inputs, weights and random calls.

    Of ranks, the first packs what is of the machine. Every rank packs input and weights of each forward pass of `model`
    until close(), and at the first pass the random calls since apply_patches(). Threads: one. Of what goes wrong in a
    pass, the program hears nothing; the log has a line.

        ConfigChecker.apply_patches("pytorch")            # at the beginning of the program
        ConfigChecker(model, ["train.sh"], "pack.zip")    # before training
    """

    def __init__(
        self,
        model: Any = None,
        shell_path: Sequence[str] | None = None,
        output_zip_path: str = "./config_check_pack.zip",
        fmk: str = "pytorch",
    ) -> None:
        """model: a module of fmk, "pytorch" or "mindspore", or a list that begins with it. shell_path: .sh and .yaml
        files. Raises MsprobeError where an argument is wrong.
        """
        self._framework = framework_of(fmk)
        model = model[0] if isinstance(model, list) and model else model
        if model is not None and not self._framework.is_module(model):
            raise MsprobeError(f"model is a {type(model).__name__}; it should be a module of {fmk}, or a list of them")
        files = _files_of(shell_path)
        self._path = _path_of(output_zip_path)
        self._passes = 0
        self._failed: set[str] = set()
        self._remove: Callable[[], None] | None = None
        if self._framework.rank() == 0:
            self._pack_static(files)
        if model is not None:
            self._remove = self._framework.before_each_pass(model, self._pass)

    @staticmethod
    def compare(bench_zip_path: str, cmp_zip_path: str, output_path: str, fmk: str = "pytorch") -> None:
        """Writes output_path/result.xlsx of two packs, as ``msprobe config_check -c`` does. fmk has no effect: packs of
        all frameworks are the same. Raises MsprobeError.
        """
        del fmk

        def work() -> None:
            from msprobe_client.compat.config_check.pack import suffix_checked
            from msprobe_client.compat.config_check.workbook import compare_packs

            compare_packs(
                suffix_checked(bench_zip_path), suffix_checked(cmp_zip_path), Path(output_path) / "result.xlsx"
            )

        with_client(work)

    @staticmethod
    def apply_patches(fmk: str = "pytorch") -> None:
        """Counts random calls by the place that makes them, until a ConfigChecker's first pass or close(); with
        Megatron, takes its arguments as hyperparameters.
        """
        Patches.put_in(framework_of(fmk))

    def close(self) -> None:
        """The model has no hook any more, and no function is replaced."""
        if self._remove is not None:
            self._remove()
            self._remove = None
        Patches.take_out()

    def __enter__(self) -> ConfigChecker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _pack_static(self, files: list[str]) -> None:
        from msprobe_client.compat.config_check import pack
        from msprobe_client.compat.config_check.static_members import static_members
        from msprobe_client.errors import MsprobeError as ClientError

        try:
            members, notes = static_members(files)
            pack.begin(self._path, _BEGAN)
            for name, text in members.items():
                self._add(name, text)
        except ClientError as error:
            raise MsprobeError(str(error)) from None
        except OSError as error:
            raise MsprobeError(f"output_zip_path {self._path} cannot be written: {error.strerror or error}") from None
        for note in notes:
            log.warning(f"ConfigChecker: {note}")
        log.info(f"ConfigChecker packs the configuration in {self._path}")

    def _pass(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        step, self._passes = self._passes, self._passes + 1
        place = f"step{step}/rank{self._framework.rank()}"
        self._guarded("input", lambda: self._pack_input(place, args, kwargs))
        self._guarded("weights", lambda: self._pack_weights(place, model))
        if step == 0:
            self._guarded("random calls", self._pack_patches)

    def _guarded(self, what: str, pack: Callable[[], None]) -> None:
        try:
            pack()
        except Exception as error:
            if what not in self._failed:
                self._failed.add(what)
                log.error(f"ConfigChecker does not pack the {what} of a pass: {type(error).__name__}: {error}")

    def _pack_input(self, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found, checksums = self._framework.features({"args": args, "kwargs": kwargs})
        self._add(f"dataset/{place}/dataset.json", json.dumps(found, indent=4))
        self._add(f"checksums/dataset/{place}/dataset.json", json.dumps(checksums, indent=4))

    def _pack_weights(self, place: str, model: Any) -> None:
        self._add(f"weights/{place}/weight.json", json.dumps(self._framework.weights(model), indent=4))

    def _pack_patches(self) -> None:
        rank = self._framework.rank()
        calls, arguments = Patches.take_out()
        self._add(f"random/rank{rank}.json", json.dumps(calls, indent=4))
        if arguments and rank == 0:
            from msprobe_client.compat.config_check.pack import DYNAMIC
            from msprobe_client.shown_values import shown_option

            shown = {name: shown_option(name, value) for name, value in arguments.items()}
            self._add(DYNAMIC, json.dumps(shown, default=lambda value: None, indent=4))

    def _add(self, name: str, text: str) -> None:
        from msprobe_client.compat.config_check import pack

        pack.add(self._path, name, text)


def _files_of(shell_path: Any) -> list[str]:
    if shell_path is None:
        return []
    if not isinstance(shell_path, (list, tuple)) or not all(isinstance(path, str) for path in shell_path):
        raise MsprobeError(f"shell_path is {shell_path!r}; it should be a list of paths, of .sh and .yaml files")
    return list(shell_path)


def _path_of(output_zip_path: Any) -> Path:
    try:
        import msprobe_client.compat.config_check  # noqa: F401
    except ImportError:
        raise MsprobeError(
            "ConfigChecker packs by msprobe-client, which this environment lacks; install it here"
        ) from None
    if not isinstance(output_zip_path, str) or not output_zip_path.endswith(".zip"):
        raise MsprobeError(f"output_zip_path is {output_zip_path!r}; it should be a text that ends with .zip")
    return Path(output_zip_path)


__all__ = ["ConfigChecker"]
