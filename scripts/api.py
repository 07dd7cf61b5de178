#!/usr/bin/env python3
"""The public interface of vulkan-cuda as text, and its size. Reads what `cargo doc` made.

api.py          prints the sizes. Fails if crates/vulkan-cuda/api.txt differs: then look at the difference, and write it
api.py --write  writes it

The text has the signatures of every item that rustdoc shows, without implementations of traits.
"""

import html
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates/vulkan-cuda"
PAGES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc/vulkan_cuda"


def without_tests(text: str) -> list[str]:
    """Return the lines before the module of tests, which ends a file."""
    return re.split(r"^#\[cfg\(test\)\]\n(?:pub\S* )?mod ", text, flags=re.M)[0].splitlines()


def signatures(page: str) -> list[str]:
    """Return an item's signatures, each in one line."""
    own = re.split(r'id="(?:trait|synthetic|blanket)-implementations"', page)[0]
    found = re.findall(r'<(?:pre class="rust item-decl"|h4 class="code-header")>(.*?)</(?:pre|h4)>', own, re.S)
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split()) for text in found]


def main() -> None:
    """Compare or write, and print the sizes."""
    if not (PAGES / "all.html").exists():
        sys.exit("there is no documentation: cargo doc --no-deps")
    listed = re.findall(r'<li><a href="([^"#]+)"', (PAGES / "all.html").read_text())
    # An item that is public in two modules has two pages. The last is in the module of its subject.
    items = {Path(link).name: link for link in listed}
    text = ""
    for link in sorted(items.values()):
        first, *rest = signatures((PAGES / link).read_text())
        text += "\n".join([f"{Path(link).parent}: {first}", *(f"    {line}" for line in rest)]) + "\n"

    lines = [line for file in (CRATE / "src").rglob("*.rs") for line in without_tests(file.read_text())]
    code = [line for line in lines if line.strip() and not line.strip().startswith("//")]
    types = [name for name in items if name.startswith(("struct", "enum", "trait", "union"))]
    print(f"vulkan-cuda without tests: {len(code)} lines of code, {len(lines)} lines, {len(types)} public types")

    kept = CRATE / "api.txt"
    if "--write" in sys.argv:
        kept.write_text(text)
    if kept.read_text() != text:
        sys.exit("the public interface is not that of crates/vulkan-cuda/api.txt: scripts/api.py --write, and git diff")



main()
