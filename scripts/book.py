#!/usr/bin/env python3
"""Checks the links of every Markdown file and the code in it, and finishes the built book. For scripts/book.sh.

book.py check            every relative link, its anchor, and every copied block of code of every Markdown file
book.py refresh          copies the blocks of code again
book.py finish BOOK [SOURCE]
                         in the HTML of BOOK: links to files of the repository begin with SOURCE (the default is the
                         relative path to the checkout)

A block of code is a copy if `<!-- code FILE:ANCHOR -->` stands in the line before it. In FILE, comments with
`ANCHOR: NAME` and `ANCHOR_END: NAME` stand around the lines. Without an anchor it is the whole file.

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
COPY = re.compile(r"^(<!-- code ([^ :]+)(?::(\S+))? -->\n```[^\n]*\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
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
    """Say which links of a page lead nowhere."""
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
    return wrong


def original(page: Path, name: str, anchor: str) -> str:
    """Read the lines that a block of code is a copy of."""
    text = (page.parent / name).read_text(encoding="utf-8")
    if anchor:
        marked = rf"^[^\n]*ANCHOR: {re.escape(anchor)}\n(.*?)^[^\n]*ANCHOR_END: {re.escape(anchor)}$"
        found = re.search(marked, text, re.MULTILINE | re.DOTALL)
        if not found:
            raise LookupError(f"code {name}: there is no anchor {anchor}")
        text = found[1]
    return textwrap.dedent(re.sub(r"^[^\n]*ANCHOR(_END)?: [^\n]*\n", "", text, flags=re.MULTILINE))


def refreshed(page: Path) -> str:
    """Make the text of a page with its code as it is now."""
    text = page.read_text(encoding="utf-8")
    return COPY.sub(lambda match: match[1] + original(page, match[2], match[3]) + match[5], text)


def pages() -> list[str]:
    """List every Markdown file that git knows, or could."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def stale(page: Path) -> list[str]:
    """Say whether the code of a page is not that of its sources."""
    try:
        is_stale = refreshed(page) != page.read_text(encoding="utf-8")
    except (OSError, LookupError) as error:
        return [str(error)]
    return ["the code is not that of its source: scripts/book.py refresh"] if is_stale else []


def refresh() -> None:
    """Copy the code into all pages again."""
    for page in map(ROOT.joinpath, pages()):
        page.write_text(refreshed(page), encoding="utf-8")


def check() -> int:
    """Check every page."""
    listed = pages()
    wrong = [f"{page}: {what}" for page in listed for what in wrong_links(ROOT / page) + stale(ROOT / page)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(listed)} Markdown files, {len(wrong)} wrong links or blocks of code")
    return 1 if wrong else 0


def finish(book: Path, source: str | None) -> None:
    """Change the links of a built book."""
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

    for page in book.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r'href="([^"]*)"', repository, text)
        page.write_text(text, encoding="utf-8")


def main() -> int:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["check"]:
            return check()
        case ["refresh"]:
            refresh()
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
