"""Links between the documents lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if "static" not in page.parts
]


def headings(page: Path) -> set[str]:
    """Anchors the way GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    found = re.findall(r"(?m)^#+ +(.*)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in headings(found), f"{target}: no such heading"


def test_every_reference_page_is_on_the_shelf() -> None:
    shelf = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*/*.md"):
        if page.parent.name != "decisions":
            assert f"{page.parent.name}/{page.name}" in shelf, page


def test_no_tracked_file_names_a_machine() -> None:
    """Paths of somebody's machine and addresses of an index belong to that machine."""
    if not (ROOT / ".git").exists():
        return
    index = "(py" + "pi|files\\.python" + "hosted|registry\\.npm" + "js)\\.(org|com)"
    found = subprocess.run(["git", "grep", "-nIE", index], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.stdout == ""
