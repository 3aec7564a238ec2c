"""What an installed mindstudio-probe offers to its users, as JSON: tool_surface.py [pytorch | mindspore ...].

Public is, by rule:

- every command of `msprobe` and each of its options; of the 1.0 line, `msprobe -f FRAMEWORK`, those of each FRAMEWORK;
- every plugin that the distribution registers;
- every module of its own that `python -m` runs;
- every function and class that the __init__.py of a package imports from the tool or defines (__all__, where it is
  set), and every public method of such a class with its parameters;
- the functions and classes of modules that no module of the tool imports: only users can.

Names that begin with an underscore are not public. Modules are parsed, not imported: parts of the tool ask for an NPU.
Where __init__.py takes what it finds by a loop (bench_functions), the names are those of modules that nobody imports.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import fnmatch
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import types
import unittest.mock

ROOT = "msprobe"
Definition = (ast.FunctionDef, ast.ClassDef)


@dataclasses.dataclass(frozen=True)
class Module:
    name: str
    is_package: bool
    tree: ast.Module

    def imports(self):
        """Local name -> (module, name in it), of `from ... import`; (module, None) of `import`."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name: (alias.name, None) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name: (self._source(node), alias.name) for alias in node.names}
        return found

    def definitions(self):
        return {node.name: node for node in self.tree.body if isinstance(node, Definition)}

    def listed(self):
        """Its __all__, or None."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and any(getattr(to, "id", "") == "__all__" for to in node.targets):
                return [getattr(each, "id", None) or ast.literal_eval(each) for each in node.value.elts]
        return None

    def is_program(self):
        return any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in self.tree.body)

    def _source(self, node):
        if not node.level:
            return node.module
        parts = self.name.split(".")
        above = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*above, *filter(None, [node.module])])


class Source:
    """The parsed modules of the package msprobe in a directory."""

    def __init__(self, directory):
        self._modules = {}
        for path in sorted(directory.rglob("*.py")):
            parts = [ROOT, *path.relative_to(directory).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            with contextlib.suppress(SyntaxError):
                self._modules[name] = Module(name, is_package, ast.parse(path.read_text(encoding="utf-8")))

    def names(self):
        """Full name -> method -> parameters, of public functions and classes; functions have no methods."""
        found = {}
        for module in self._modules.values():
            for name in self._public(module):
                definition = self.definition(module.name, name)
                if definition is not None:
                    found[f"{module.name}.{name}"] = self.methods(*definition)
        return found

    def programs(self):
        return [name for name, module in self._modules.items() if module.is_program()]

    def definition(self, module, name):
        """(module, node) of what stands under this name, behind any number of imports. None: not the tool's own."""
        seen = set()
        while (module, name) not in seen and module in self._modules:
            seen.add((module, name))
            here = self._modules[module]
            if name in here.definitions():
                return module, here.definitions()[name]
            module, name = here.imports().get(name, (None, None))
        return None

    def _public(self, module):
        if not module.is_package:
            if module.name in self._imported:
                return []
            return [name for name in module.definitions() if not name.startswith("_")]
        names = module.listed()
        if names is None:
            names = [*module.imports(), *module.definitions()]
        return [name for name in names if not name.startswith("_")]

    @functools.cached_property
    def _imported(self):
        """Modules, and names in modules, that some module imports."""
        found = set()
        for module in self._modules.values():
            for source, name in module.imports().values():
                found |= {source, f"{source}.{name}"}
        return found

    def methods(self, module, node):
        """Method -> parameters, ** for any others. {}: node is a function."""
        if isinstance(node, ast.FunctionDef):
            return {}
        found = {}
        for base in node.bases:
            above = self.definition(module, base.id) if isinstance(base, ast.Name) else None
            found |= self.methods(*above) if above else {}
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                given = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
                found[method.name] = [each.arg for each in given if each.arg not in ("self", "cls")]
                found[method.name] += ["**"] if method.args.kwarg else []
        return found


class Stop(BaseException):
    """Not an Exception: the tool catches those."""


def commands(frameworks):
    """Command -> its options, each as its spellings."""
    found = {}
    with _parsers() as parser_of:
        if not frameworks:
            tree = parser_of([])
            for framework in ("pytorch", "mindspore"):
                described = pathlib.Path(f"{framework}.json")  # these two look for their framework in the dump
                described.write_text(json.dumps({"framework": framework}))
                for name in ("acc_check", "multi_acc_check"):
                    options = _options(parser_of([name, "-api_info", str(described)]))
                    tree[f"{name} ({framework})"] = options
            found |= {name: options for name, options in tree.items() if name not in ("acc_check", "multi_acc_check")}
        for framework in frameworks:
            found |= {
                f"-f {framework} {name}": options
                for name, options in parser_of(["-f", framework, "compare"]).items()
                if name
            }
    return found


@contextlib.contextmanager
def _parsers():
    """A function from arguments to what the tool parses them by: command -> options, or the parser of one command."""
    parse = argparse.ArgumentParser.parse_known_args
    reached = []

    def stop(parser, arguments=None, *others):
        looks = len(parser._actions) == 1 or (arguments and arguments[0] == "-f" and len(arguments) == 2)
        if looks:  # for the framework; the parser of the command comes next
            return parse(parser, arguments, *others)
        reached.append(parser)
        raise Stop

    def parser_of(arguments):
        import msprobe.msprobe

        words = ["msprobe", *(arguments or ["compare"])]
        with unittest.mock.patch.object(sys, "argv", words), contextlib.suppress(Stop):
            msprobe.msprobe.main()
        parser = reached.pop()
        tree = _tree(parser)
        return tree if len(tree) > 1 else parser

    with unittest.mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop):
        yield parser_of


def _tree(parser):
    found = {"": _options(parser)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {name: _options(below) for name, below in action.choices.items()}
    return found


def _options(parser):
    found = [sorted(action.option_strings) or [action.dest] for action in parser._actions]
    return sorted(each for each in found if "--help" not in each and "==SUPPRESS==" not in each)


class Anything(type):
    """A class that has every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)


def anything(name):
    """A class, and its instances, that take whatever they are given."""
    return Anything(
        name,
        (),
        {
            "__init__": lambda *_, **__: None,
            "__call__": lambda *_, **__: anything(name)(),
            "__getattr__": lambda _, inner: anything(inner),
        },
    )


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Libraries that the tool imports on its way to the parsers, and that this environment does not have."""

    NAMES = ("OpenSSL", "mindspore", "twisted")

    def find_spec(self, name, path=None, target=None):
        del path, target
        ours = name.partition(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__version__ = "2.7.0"
        module.__getattr__ = lambda name: getattr(anything("Absent"), name)
        return module

    def exec_module(self, module):
        pass


def _name_what_numpy_had():
    """For older versions."""
    import numpy

    numpy.unicode_, numpy.float_, numpy.complex_ = numpy.str_, numpy.float64, numpy.complex128


def plugins():
    """Of the distribution that mindstudio-probe calls itself."""
    try:
        entries = importlib.metadata.distribution("mindstudio-probe").entry_points
    except importlib.metadata.PackageNotFoundError:
        return []
    return sorted(f"{entry.group} {entry.name}" for entry in entries if entry.group != "console_scripts")


def fits(pattern, name):
    """Whether a name of the list is one that a row of docs/compatibility.md means: with * for anything."""
    return fnmatch.fnmatchcase(name, pattern)


def surface(frameworks):
    import tempfile

    sys.meta_path.append(Absent())
    if frameworks:
        _name_what_numpy_had()
    source = Source(pathlib.Path(importlib.util.find_spec(ROOT).origin).parent)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        return {
            "commands": commands(frameworks),
            "plugins": [] if frameworks else plugins(),
            "programs": source.programs(),
            "names": source.names(),
        }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # the tool's log lines
        found = surface(sys.argv[1:])
    json.dump(found, sys.stdout, indent=1, sort_keys=True)
