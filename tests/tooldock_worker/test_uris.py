"""URI templates: which URIs they stand for, what they take out of them, and that matching stays cheap."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tooldock_worker.uris import MAX_URI, BadTemplate, Template, canonical, is_template, split_list


@pytest.mark.parametrize(
    ("template", "uri", "found"),
    [
        ("a://{x}", "a://b", {"x": "b"}),
        ("a://{x}", "a://b/c", None),
        ("a://{x}", "a://", None),
        ("a://{x}/data", "a://7/data", {"x": "7"}),
        ("a://{x}/data", "a://7/other", None),
        ("a://{x}/{y}", "a://b/c", {"x": "b", "y": "c"}),
        ("a://{x*}", "a://b/c/d", {"x": "b/c/d"}),
        ("a://{x*}/{y}.txt", "a://b/c/d.e.txt", {"x": "b/c", "y": "d.e"}),
        ("a://{x}-{y*}", "a://p-q/r-t", {"x": "p-q"[:1], "y": "q/r-t"}),
        ("a://{x}{y}", "a://bcd", {"x": "bc", "y": "d"}),
        ("a://{x}b", "a://bb", {"x": "b"}),
        ("a://{user-id}", "a://7", {"user_id": "7"}),
        ("a://{x}", "a://b%20c%2Fd", {"x": "b c/d"}),
        ("a://é/{x}", "a://%c3%a9/1", {"x": "1"}),
        ("a://é/{x}", "a://é/1", {"x": "1"}),
        ("a://{x}", "a://b#part", {"x": "b"}),
        ("a://{x}#{y}", "a://b#part", {"x": "b", "y": "part"}),
        ("a://list{?q,page}", "a://list", {}),
        ("a://list{?q,page}", "a://list?page=2&q=a+b&other=1", {"page": "2", "q": "a b"}),
        ("a://list{?q}", "a://list?q=", {"q": ""}),
        ("a://list{?q}", "a://list?q=1&q=2", {"q": "1"}),
        ("a://list{?q*}", "a://list?q=1&q=2", {"q": ["1", "2"]}),
        ("a://list{?max-size}", "a://list?max-size=3", {"max_size": "3"}),
        ("a://{x}{?q}/end", "a://b/end?q=1", {"x": "b", "q": "1"}),
        ("a://{x}", "b://b", None),
    ],
)
def test_a_template_stands_for_some_uris_and_takes_its_parameters_out_of_them(
    template: str, uri: str, found: dict[str, Any] | None
) -> None:
    assert Template(template).match(uri) == found


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("a://{x", "brace"),
        ("a://x}", "brace"),
        ("a://{}", "no name"),
        ("a://{1}", "no name"),
        ("a://{+x}", "no name"),
        ("a://{x}/{x}", "twice"),
        ("a://{x-y}/{x_y}", "twice"),
        ("a://{x}{?x}", "twice"),
        ("a://{?a}{?b}", "two"),
        ("a://{?a,}", "no name"),
        ("a://" + "".join(f"{{a{n}}}" for n in range(33)), "more than 32"),
    ],
)
def test_what_is_no_template_is_refused_with_the_reason(template: str, why: str) -> None:
    with pytest.raises(BadTemplate, match=why):
        Template(template)


def test_a_template_knows_its_parameters_and_how_it_spells_them() -> None:
    template = Template("a://{user-id}/{path*}{?page,tags*}")
    assert (template.path, template.query) == (("user_id", "path"), ("page", "tags"))
    assert template.repeated == {"tags"}
    assert template.spelt == {"user_id": "user-id", "path": "path", "page": "page", "tags": "tags"}
    assert is_template("a://{x}")
    assert not is_template("a://x")


def test_a_list_in_one_value_is_split_at_its_commas() -> None:
    raw = Template("a://list{?tags}").raw_query("a://list?tags=a,b%2Cc&tags=d#e")["tags"]
    assert split_list(raw) == ["a", "b,c"]
    assert split_list("") == []


def test_one_spelling_stands_for_all() -> None:
    assert canonical("a://é ü%c3%a9") == canonical("a://%C3%A9%20%c3%bc%C3%A9")
    assert canonical("a://x/?y=1&z=[2]") == "a://x/?y=1&z=[2]"


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("x://{a*}/{b*}/{c*}/{d*}.txt", "x://" + "/" * (MAX_URI - 4)),
        ("x://{a}{b}{c}{d}{e}/", "x://" + "a" * (MAX_URI - 4)),
        ("x://{a}-{b}-{c}-{d}-{e}/z", "x://" + "-" * (MAX_URI - 4)),
        ("x://" + "".join(f"{{a{n}*}}" for n in range(32)), "x://" + "\U0001f600" * (MAX_URI - 4)),
    ],
)
def test_no_uri_makes_matching_expensive(template: str, uri: str) -> None:
    """As a regular expression each of these takes minutes."""
    started = time.process_time()
    assert Template(template).match(uri) is None
    assert time.process_time() - started < 1
    assert Template(template).match(uri + "y") is None
