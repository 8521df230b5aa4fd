"""The documentation page is complete, cacheable, and fetches nothing from elsewhere."""

from __future__ import annotations

import gzip
import re
from hashlib import sha256
from pathlib import Path

import pytest

import tooldock.edge
from tests.edge.world import ask, front
from tooldock.edge import Docs

STATIC = Path(tooldock.edge.__file__).parent / "static"
ASSETS = ["/docs", "/docs/docs.css", "/docs/docs.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"]


@pytest.mark.parametrize("path", ASSETS)
async def test_everything_is_served_without_a_token_under_a_strict_policy(path: str) -> None:
    answer = await ask(front(Docs().respond), "GET", path)
    assert answer.status == 200
    policy = answer.header("content-security-policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("path", ASSETS)
async def test_it_is_asked_again_and_answered_with_304(path: str) -> None:
    app = front(Docs().respond)
    first = await ask(app, "GET", path)
    etag = first.header("etag") or ""
    again = await ask(app, "GET", path, {"if-none-match": etag})
    assert again.status == 304
    assert again.body == b""
    assert again.header("etag") == etag
    assert (await ask(app, "GET", path, {"if-none-match": '"other"'})).status == 200


async def test_compressed_and_plain_are_the_same() -> None:
    app = front(Docs().respond)
    plain = await ask(app, "GET", "/docs/swagger-ui-bundle.js")
    packed = await ask(app, "GET", "/docs/swagger-ui-bundle.js", {"accept-encoding": "br, gzip"})
    assert packed.header("content-encoding") == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 3


@pytest.mark.parametrize("path", ["/docs/", "/docs/LICENSE", "/docs/../front.py", "/docs/README.md", "/docs/x"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await ask(front(Docs().respond), "GET", path)).status == 404


def test_the_page_refers_only_to_what_is_served_here() -> None:
    page = (STATIC / "docs.html").read_text()
    references = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert set(references) == {*ASSETS, "data:,"}
    assert "style=" not in page
    assert not re.search(r"<script(?![^>]*src=)", page)


def test_the_vendored_files_are_the_ones_recorded() -> None:
    recorded = dict(re.findall(r"\| `([^`]+)` \| `([0-9a-f]{64})` \|", (STATIC / "README.md").read_text()))
    assert len(recorded) == 5
    for name, digest in recorded.items():
        assert sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
