"""Lets a torch that was built for CUDA be imported where CUDA's gigabytes of libraries are absent, as tests use none.

In their place stand empty libraries of the same names, beside torch's own. Each of their functions that torch refers to
says 100, which is CUDA's "no device".
"""

import dataclasses
import pathlib
import re
import subprocess

NO_DEVICE = 100
SAYS_WHY = re.compile("Error(String|Name)$", re.IGNORECASE)


def said(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


@dataclasses.dataclass(frozen=True)
class Tools:
    prefix: str  # of the names of the compiler and of binutils
    number: str  # instructions that answer with NO_DEVICE
    text: str  # with the address of `why`

    def compiled(self, *arguments):
        said(f"{self.prefix}gcc", "-shared", "-nostdlib", *arguments)

    def symbols(self, library, kind):
        """Names of the dynamic symbols, without their versions."""
        lines = said(f"{self.prefix}nm", "-D", kind, library).splitlines()
        return {line.split()[-1].partition("@")[0] for line in lines}

    def needed(self, library):
        return set(re.findall(r"NEEDED\s+(\S+)", said(f"{self.prefix}objdump", "-p", library)))


X86_64 = Tools("", f"mov ${NO_DEVICE}, %eax", "lea why(%rip), %rax")
AARCH64 = Tools("aarch64-linux-gnu-", f"mov w0, #{NO_DEVICE}", "adrp x0, why\n  add x0, x0, :lo12:why")


def of_this_machine():
    """Names of the libraries that it has."""
    return set(re.findall(r"^\s+(\S+) \(", said("/sbin/ldconfig", "-p"), re.MULTILINE))


def write(libraries: pathlib.Path, tools: Tools, system: set[str]) -> list[str]:
    """Completes the folder torch/lib; gives the names of what was missing. `system`: libraries that are elsewhere."""
    theirs = [path for path in libraries.glob("*.so*") if path.is_file()]
    needed = set().union(*map(tools.needed, theirs))
    missing = sorted(needed - {path.name for path in theirs} - system)
    if not missing:
        return []
    defined = set().union(*(tools.symbols(path, "--defined-only") for path in theirs))
    wanted = set().union(*(tools.symbols(path, "--undefined-only") for path in theirs)) - defined
    functions = sorted(name for name in wanted if re.match(r"_*(cu|nv|nccl)", name, re.IGNORECASE))
    # In a library of another name: one without versions may not have what is asked of it by name and version.
    source = libraries / "no_cuda.s"
    with source.open("w") as text:
        text.write(".text\n")
        for chosen, answer in (
            ([name for name in functions if SAYS_WHY.search(name)], tools.text),
            ([name for name in functions if not SAYS_WHY.search(name)], tools.number),
        ):
            for name in chosen:
                text.write(f".globl {name}\n.type {name}, %function\n{name}:\n")
            text.write(f"  {answer}\n  ret\n")
        text.write('why: .string "no CUDA"\n.section .note.GNU-stack\n')
    own = libraries / "libno_cuda.so"
    tools.compiled(f"-Wl,-soname,{own.name}", source, "-o", own)
    empty = libraries / "no_cuda_empty.s"
    empty.write_text(".section .note.GNU-stack\n")
    for name in missing:
        tools.compiled(
            *("-Wl,--no-as-needed", f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", empty, own, "-o", libraries / name)
        )
    return missing
