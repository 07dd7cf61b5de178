#!/usr/bin/env python3
"""Prints the licences of everything in the program `wavefield`: its crates, their fonts, Rust's standard library.

licences.py > LICENSE-THIRD-PARTY    for the wheel (wheel.sh), and for whoever passes the program on

Fails if a crate has no text of its licence. Apache-2.0 is excepted: its text is the same for every crate.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAMES = re.compile(r"licen[cs]e|copying|copyright|notice|^[ou]fl\b", re.I)
APACHE = (ROOT / "LICENSE-APACHE").read_text().strip()


def output(*command: str) -> str:
    """Run a command at the root, and return its output."""
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def packages() -> list[dict[str, Any]]:
    """Return the packages whose code is in the program, as cargo describes them."""
    host = re.search(r"^host: (.*)$", output("rustc", "-vV"), re.M)
    assert host
    data = json.loads(output("cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={host[1]}"))
    of_id = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node["deps"] for node in data["resolve"]["nodes"]}
    found: dict[str, None] = {}
    todo = [package["id"] for package in data["packages"] if package["name"] == "wavefield"]
    while todo:
        package = todo.pop()
        # A macro runs in the compiler.
        if package in found or "proc-macro" in of_id[package]["targets"][0]["kind"]:
            continue
        found[package] = None
        todo += [dep["pkg"] for dep in nodes[package] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    # Those without a source are this repository's.
    return sorted((of_id[id] for id in found if of_id[id]["source"]), key=lambda package: package["name"])


def texts(package: dict[str, Any]) -> list[str]:
    """Return the licence texts in a package's folder. Those of a font may have any name."""
    folder = Path(package["manifest_path"]).parent
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix not in (".rs", ".html")]
    files = [file for file in files if not {"tests", "examples", "benches"} & set(file.relative_to(folder).parts)]
    fonts = {file.parent for file in files if file.suffix in (".ttf", ".otf")}
    wanted = [file for file in files if NAMES.search(file.name) or (file.suffix == ".txt" and file.parent in fonts)]
    return [file.read_text(errors="replace").strip() for file in wanted]


def words(text: str) -> str:
    """Return the text in one line."""
    return " ".join(text.split())


def main() -> None:
    """Print each text once, after the names of those that it is for."""
    rust = output("rustc", "--version").strip()
    named = [f"Rust's standard library ({rust}), by the Rust Project Developers: MIT OR Apache-2.0"]
    # By its words, because the same text may be wrapped differently: the text, and those that it is for.
    licences: dict[str, tuple[str, list[str]]] = {words(APACHE): (APACHE, ["Rust's standard library"])}
    for package in packages():
        name = f"{package['name']} {package['version']}"
        found = texts(package)
        if not found:
            if "Apache-2.0" not in re.split(r" OR |/", package["license"] or ""):
                sys.exit(f"licences.py: {name} ({package['license']}) comes without the text of its licence")
            found = [APACHE]
        authors = ", ".join(author.split(" <")[0] for author in package["authors"])
        named.append(f"{name}{authors and ', by '}{authors}: {package['license']}")
        for key, text in {words(text): text for text in found}.items():
            licences.setdefault(key, (text, []))[1].append(name)
    print("The program `wavefield` contains:", "", *named, sep="\n")
    for text, names in licences.values():
        print("", "=" * 80, f"For {', '.join(names)}:", "", text, sep="\n")


main()
