"""The rooms of the package: a module imports from its own room and from those below it, and never in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import wavefield
from readmes import ROOT

PACKAGE = Path(wavefield.__file__).parent
TOP = "all other files"


def order() -> list[list[str]]:
    """Return the rooms as CONTRIBUTING.md has them, the lowest first: folders, and files of the package."""
    _, _, table = (ROOT / "CONTRIBUTING.md").read_text().partition("| room, the lowest first | |\n|---|---|\n")
    rows = [row.split("|")[1] for row in table.partition("\n\n")[0].splitlines()]
    return [re.findall(r"`(\w+)(?:\.py)?`", row) or [row.strip()] for row in rows]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__") or "__init__"


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports(name: str) -> Iterator[tuple[str, int]]:
    """Yield the modules that one imports, anywhere in it and also for types, with the lines."""
    folder = name.split(".")[:-1]
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = folder[: len(folder) + 1 - node.level]
            module = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inside = f"{module}.{alias.name}".removeprefix(".")
                yield (inside if inside in MODULES else module), node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(one.partition(".")[0] == "wavefield" for one in named):
                yield "__init__", node.lineno


def test_a_module_imports_from_its_own_room_and_those_below() -> None:
    rooms = order()
    assert rooms[-1] == [TOP] and "_memory" in rooms[1]
    known = {name: number for number, names in enumerate(rooms) for name in names}
    folders = {name.partition(".")[0] for name in MODULES if "." in name}
    assert folders <= {*known}, "a folder is not in CONTRIBUTING.md"

    def floor(name: str) -> int:
        return known.get(name.partition(".")[0], known[TOP])

    wrong = [
        f"{name}:{line} imports {other}, which is above"
        for name in MODULES
        for other, line in imports(name)
        if floor(other) > floor(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter({name: {other for other, _ in imports(name)} for name in MODULES}).prepare()


def test_a_room_is_a_folder_that_hands_nothing_on() -> None:
    for name in MODULES:
        if name.endswith("."):
            assert ast.get_docstring(tree := ast.parse(MODULES[name].read_text())) and len(tree.body) == 1, name
