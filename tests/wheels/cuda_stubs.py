"""Lets a torch that was built for CUDA be imported where CUDA's gigabytes of libraries are absent, as tests use none.

In their place stand empty libraries of the same names, beside torch's own. Each of their functions that torch refers to
says 100, which is CUDA's "no device".
"""

import pathlib
import re
import subprocess

NO_DEVICE = 100
SAYS_WHY = re.compile("Error(String|Name)$", re.IGNORECASE)


def said(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def symbols(library, kind):
    """Names of the dynamic symbols, without their versions."""
    return {line.split()[-1].partition("@")[0] for line in said("nm", "-D", kind, library).splitlines()}


def write(libraries: pathlib.Path) -> list[str]:
    """Completes the folder torch/lib; gives the names of what was missing."""
    theirs = [path for path in libraries.glob("*.so*") if path.is_file()]
    needed = {name for path in theirs for name in re.findall(r"NEEDED\s+(\S+)", said("objdump", "-p", path))}
    system = set(re.findall(r"^\s+(\S+) \(", said("/sbin/ldconfig", "-p"), re.MULTILINE))
    missing = sorted(needed - {path.name for path in theirs} - system)
    if not missing:
        return []
    defined = set().union(*(symbols(path, "--defined-only") for path in theirs))
    wanted = set().union(*(symbols(path, "--undefined-only") for path in theirs)) - defined
    functions = sorted(name for name in wanted if re.match(r"_*(cu|nv|nccl)", name, re.IGNORECASE))
    # In a library of another name: one without versions may not have what is asked of it by name and version.
    source = libraries / "no_cuda.s"
    with source.open("w") as text:
        text.write(".text\n")
        for chosen, answer in (
            ([name for name in functions if SAYS_WHY.search(name)], "lea why(%rip), %rax"),
            ([name for name in functions if not SAYS_WHY.search(name)], f"mov ${NO_DEVICE}, %eax"),
        ):
            for name in chosen:
                text.write(f".globl {name}\n.type {name}, @function\n{name}:\n")
            text.write(f"  {answer}\n  ret\n")
        text.write('why: .string "no CUDA"\n.section .note.GNU-stack\n')
    own = libraries / "libno_cuda.so"
    said("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{own.name}", source, "-o", own)
    empty = libraries / "no_cuda_empty.s"
    empty.write_text(".section .note.GNU-stack\n")
    for name in missing:
        said(
            *("gcc", "-shared", "-nostdlib", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN"),
            *(empty, own, "-o", libraries / name),
        )
    return missing
