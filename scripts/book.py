#!/usr/bin/env python3
"""Checks the links of every Markdown file, and finishes the built book. For scripts/book.sh.

book.py check            every relative link, its anchor, and every {{#include}} of every Markdown file
book.py finish BOOK [SOURCE]
                         in the HTML of BOOK: links to files of the repository begin with SOURCE (the default is the
                         relative path to the checkout), and included code loses its indentation

Links to other sites are not followed: this needs no network.
"""

import html
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]: *(\S+)", re.MULTILINE)
INCLUDE = re.compile(r"\{\{#include ([^}:]+)(?::([^}]+))?\}\}")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def slug(heading: str) -> str:
    """Make the anchor of a heading, as GitHub and mdBook do."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return "".join(c for c in text.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def anchors(page: Path) -> set[str]:
    """List the anchors of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        name, again = slug(heading), 1
        while name in found:
            name, again = f"{slug(heading)}-{again}", again + 1
        found.add(name)
    return found


def wrong_links(page: Path) -> list[str]:
    """Say which links and includes of a page lead nowhere."""
    wrong = []
    text = COMMENT.sub("", page.read_text(encoding="utf-8"))
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    for match in LINK.findall(prose):
        link = match[0] or match[1]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            wrong.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: there is no such heading")
    for name, anchor in INCLUDE.findall(text):
        target = page.parent / name
        if not target.exists():
            wrong.append(f"include of {name}: there is no such file")
        elif anchor and not re.search(
            rf"ANCHOR: {re.escape(anchor)}$", target.read_text(encoding="utf-8"), re.MULTILINE
        ):
            # mdBook would show nothing, without a warning.
            wrong.append(f"include of {name}: there is no anchor {anchor}")
    return wrong


def check() -> int:
    """Check every Markdown file that git knows, or could."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    wrong = [f"{page}: {what}" for page in listed for what in wrong_links(ROOT / page)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(listed)} Markdown files, {len(wrong)} wrong links")
    return 1 if wrong else 0


def finish(book: Path, source: str | None) -> None:
    """Change the links and the code of a built book."""
    source = source or os.path.relpath(ROOT, book)
    chapters = ROOT / "docs/guide/src"

    def repository(match: re.Match[str]) -> str:
        name, _, anchor = html.unescape(match[1]).partition("#")
        if re.match(r"[a-z]+:", name) or not name.startswith("../"):
            return match[0]
        # mdBook treats every .md as a chapter.
        if name.endswith(".html") and not (chapters / name).exists():
            name = name.removesuffix(".html") + ".md"
        path = os.path.relpath((chapters / name).resolve(), ROOT)
        return f'href="{html.escape(source)}/{path}{"#" + anchor if anchor else ""}"'

    def dedented(match: re.Match[str]) -> str:
        return match[1] + textwrap.dedent(match[2]) + match[3]

    for page in book.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r'href="([^"]*)"', repository, text)
        text = re.sub(r'(<code class="language-(?:rust|python)[^"]*">)(.*?)(</code>)', dedented, text, flags=re.DOTALL)
        page.write_text(text, encoding="utf-8")


def main() -> int:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["check"]:
            return check()
        case ["finish", book]:
            finish(Path(book), None)
        case ["finish", book, source]:
            finish(Path(book), source)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
