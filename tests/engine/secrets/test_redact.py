from __future__ import annotations

import base64
import json
import random
import re
import time
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tooldock.engine.secrets import Redactor

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
LABEL = b"[redacted:TOKEN]"
PLAIN = [
    TOKEN,
    "päßwörter!",
    'a"b\\c/d e\n+f',
    "pass word?&=%",
    "12345678",
    "日本語の秘密です",
    "😀😀😀😀😀😀😀😀",
    "a/b/c/d/e",
]
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTU\n-----END KEY-----\n"


def redactor(*values: str) -> Redactor:
    return Redactor([("TOKEN", value) for value in values])


def clean(secret: str, data: bytes) -> bytes:
    result, count = redactor(secret).redact(data)
    assert count >= 1
    return result


@pytest.mark.parametrize("secret", PLAIN)
def test_the_plain_value_is_found(secret: str) -> None:
    data = f"before {secret} after".encode()
    assert redactor(secret).redact(data) == (b"before " + LABEL + b" after", 1)
    assert redactor(secret).redact_text(f"<{secret}>") == f"<{LABEL.decode()}>"


@pytest.mark.parametrize("secret", [TOKEN, "päßwörter!", 'a"b\\c/d e\n+f'])
def test_what_a_cut_left_of_it_is_found_where_texts_are_cut(secret: str) -> None:
    label = LABEL.decode()
    for length in range(8, len(secret)):
        left = secret[:length]
        assert redactor(secret).redact_text(f"<{left}") == f"<{label}"
        assert redactor(secret).redact_text(f"<{left}… [cut]") == f"<{label}… [cut]"
    for clean_text in ("", "…", f"{secret[:3]}…", f"… {secret[:3]}"):
        assert redactor(secret).redact_text(clean_text) == clean_text


@pytest.mark.parametrize("secret", PLAIN)
@pytest.mark.parametrize("shift", range(8))
def test_it_is_found_at_every_offset_and_at_both_ends(secret: str, shift: int) -> None:
    data = b"<" * shift + secret.encode() + b">" * (shift % 3)
    cleaned = clean(secret, data).replace(b'"', b"")
    assert cleaned == b"<" * shift + LABEL + b">" * (shift % 3)


@pytest.mark.parametrize("secret", [*PLAIN, PEM.strip()])
def test_it_is_found_in_json_of_every_spelling(secret: str) -> None:
    document = {"a": [secret]}
    spellings = [
        json.dumps(document).encode(),
        json.dumps(document, ensure_ascii=False).encode(),
        json.dumps(document).replace("/", "\\/").encode(),
        orjson.dumps(document),
        json.dumps({"nested": json.dumps(document)}).encode(),
    ]
    for spelling in spellings:
        assert LABEL in clean(secret, spelling)
    for spelling in spellings[:4]:
        assert json.loads(clean(secret, spelling)) == {"a": [LABEL.decode()]}


@pytest.mark.parametrize("secret", PLAIN)
@pytest.mark.parametrize("upper", [False, True])
def test_it_is_found_when_every_character_is_escaped(secret: str, upper: bool) -> None:
    units = secret.encode("utf-16-be")
    spelt = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    if upper:
        spelt = "".join("\\u" + part.upper() for part in spelt.split("\\u")[1:])
    body = f'{{"x": "<{spelt}>", "y": "\\u003c"}}'.encode()
    assert json.loads(clean(secret, body)) == {"x": f"<{LABEL.decode()}>", "y": "<"}


def test_a_single_escaped_letter_hides_nothing() -> None:
    for index, letter in enumerate(TOKEN):
        spelt = f"{TOKEN[:index]}\\u{ord(letter):04x}{TOKEN[index + 1 :]}"
        assert clean(TOKEN, f'["{spelt}"]'.encode()) == b'["' + LABEL + b'"]'


def test_an_escaped_backslash_before_u_is_not_an_escape() -> None:
    body = json.dumps(["\\u0067" + TOKEN[1:]]).encode()
    assert redactor(TOKEN).redact(body) == (body, 0)


@pytest.mark.parametrize("secret", PLAIN)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_its_base64_alone_leaves_nothing(secret: str, encode: type[bytes]) -> None:
    encoded = encode(secret.encode())
    assert clean(secret, b"<" + encoded + b">") == b"<" + LABEL + b">"
    assert clean(secret, b"<" + encoded.rstrip(b"=") + b">") == b"<" + LABEL + b">"


@pytest.mark.parametrize("secret", PLAIN)
@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("after", ["", "1", "12", "123"])
def test_it_is_found_inside_a_larger_base64_text(secret: str, before: str, after: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        cleaned = clean(secret, encode(f"{before}{secret}{after}".encode()))
        kept = cleaned.replace(LABEL, b"")
        assert len(kept) <= len(encode(f"{before}12{after}".encode())) + 4


@pytest.mark.parametrize("secret", PLAIN)
def test_it_is_found_url_encoded(secret: str) -> None:
    for spelling in (quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="!*'()")):
        lower = "".join(f"%{part[:2].lower()}{part[2:]}" for part in spelling.split("%"))[1:]
        for form in (spelling, lower if "%" in spelling else spelling):
            assert clean(secret, f"https://x.example/?k={form}&z=1".encode()).endswith(LABEL + b"&z=1")


@pytest.mark.parametrize("value", ["", "1234567", "       x       ", "äöüäöüä"])
def test_short_values_are_left_alone(value: str) -> None:
    data = f"<{value}>".encode() * 3
    assert redactor(value).redact(data) == (data, 0)


def test_a_value_with_a_line_end_is_found_without_it() -> None:
    assert clean(TOKEN + "\n", TOKEN.encode()) == LABEL


def test_each_long_line_of_a_value_is_found_alone() -> None:
    for line in PEM.splitlines()[1:3]:
        assert clean(PEM, f"log: {line}".encode()) == b"log: " + LABEL
    assert redactor(PEM).redact(b"-----BEGIN KEY-----") == (b"-----BEGIN KEY-----", 0)


def test_clean_data_is_the_same_object() -> None:
    data = b'{"text": "nothing to see here, and enough of it"}'
    assert redactor(TOKEN).redact(data)[0] is data


@pytest.mark.parametrize("data", [b"", b"x", b"1234567", b"12345678"])
def test_short_data_is_fine(data: bytes) -> None:
    assert redactor(TOKEN).redact(data) == (data, 0)
    assert Redactor(()).redact(data) == (data, 0)


def test_every_occurrence_is_counted_and_adjacent_ones_are_two() -> None:
    data = TOKEN.encode() * 2 + b" " + TOKEN.encode()
    assert redactor(TOKEN).redact(data) == (LABEL * 2 + b" " + LABEL, 3)


def test_overlapping_values_leave_no_rest() -> None:
    both = Redactor([("A", "abcdefghij"), ("B", "ghijklmnop"), ("C", "cdefghijkl")])
    assert both.redact(b"<abcdefghijklmnop>") == (b"<[redacted:A]>", 1)


def test_a_value_inside_another_is_covered_by_the_longer_one() -> None:
    both = Redactor([("SHORT", "abcdefgh"), ("LONG", "xxabcdefghxx")])
    assert both.redact(b"<xxabcdefghxx> <abcdefgh>") == (b"<[redacted:LONG]> <[redacted:SHORT]>", 2)


def test_two_names_with_one_value_give_the_first() -> None:
    assert Redactor([("A", TOKEN), ("B", TOKEN)]).redact(TOKEN.encode())[0] == b"[redacted:A]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"pin": 12345678}', {"pin": LABEL.decode()}),
        (b"[12345678, 1]", [LABEL.decode(), 1]),
        (b"12345678", LABEL.decode()),
        (b'{"n": -9912345678.5e3}', {"n": LABEL.decode()}),
        (b'{"a": "x: 12345678, y", "b": 12345678}', {"a": f"x: {LABEL.decode()}, y", "b": LABEL.decode()}),
        (b'{"12345678": "12345678"}', {LABEL.decode(): LABEL.decode()}),
    ],
)
def test_a_number_that_is_a_secret_leaves_the_body_json(body: bytes, expected: object) -> None:
    assert json.loads(clean("12345678", body)) == expected


def test_the_redactor_does_not_print_its_values() -> None:
    assert TOKEN not in repr(redactor(TOKEN))


def test_a_name_cannot_break_the_text_it_stands_in() -> None:
    assert Redactor([('a"b', TOKEN)]).redact(TOKEN.encode())[0] == b"[redacted:a_b]"


# Streams.


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def streamed(known: Redactor, parts: list[bytes]) -> bytes:
    stream = known.stream()
    return b"".join([*(stream.feed(part) for part in parts), stream.finish()])


@pytest.mark.parametrize("secret", PLAIN)
def test_a_value_cut_anywhere_is_found(secret: str) -> None:
    data = f"before {secret} after {secret}".encode()
    expected = b"before " + LABEL + b" after " + LABEL
    for cut in range(len(data)):
        assert streamed(redactor(secret), [data[:cut], data[cut:]]) == expected
    assert streamed(redactor(secret), [data[i : i + 1] for i in range(len(data))]) == expected


def test_a_value_in_escapes_cut_anywhere_is_found() -> None:
    spelt = "".join(f"\\u{ord(letter):04x}" if i % 2 else letter for i, letter in enumerate(TOKEN))
    data = f'\\\\{spelt} and "{spelt}"'.encode()
    expected = b"\\\\" + LABEL + b' and "' + LABEL + b'"'
    assert redactor(TOKEN).redact(data)[0] == expected
    for cut in range(len(data)):
        assert streamed(redactor(TOKEN), [data[:cut], data[cut:]]) == expected
    assert streamed(redactor(TOKEN), [data[i : i + 1] for i in range(len(data))]) == expected


def test_clean_text_is_not_delayed() -> None:
    stream = redactor(TOKEN).stream()
    assert stream.feed(b"a line of log\n") == b"a line of log\n"
    assert stream.finish() == b""


def test_only_what_may_be_a_value_is_held_back() -> None:
    stream = redactor(TOKEN).stream()
    assert stream.feed(b"token: ghp_16C7") == b"token: "
    assert stream.feed(b"nothing\n") == b"ghp_16C7nothing\n"


def test_a_stream_of_one_repeated_value_is_bounded_in_memory() -> None:
    stream = redactor("aaaaaaaa").stream()
    result = b"".join(stream.feed(b"a" * 1000) for _ in range(200)) + stream.finish()
    assert b"aaaa" not in result
    assert len(result) < 1000


secret_text = st.text(min_size=8, max_size=24).filter(lambda text: len(text.strip()) >= 8)


@settings(max_examples=150, deadline=None)
@given(
    secrets=st.lists(secret_text | st.text("ab", min_size=8, max_size=12), min_size=1, max_size=4),
    parts=st.lists(st.integers(0, 3) | st.binary(max_size=12), max_size=12),
    cuts=st.lists(st.integers(0, 500), max_size=12),
)
@example(secrets=["aabaabaab"], parts=[0, b"aab", 0], cuts=[3, 9, 11])
def test_streamed_or_whole_no_value_survives(secrets: list[str], parts: list[int | bytes], cuts: list[int]) -> None:
    known = Redactor([(f"N{i}", secret) for i, secret in enumerate(secrets)])
    data = b"".join(
        part if isinstance(part, bytes) else secrets[part % len(secrets)].strip().encode("utf-8", "surrogatepass")
        for part in parts
    )
    for result in (known.redact(data)[0], streamed(known, pieces(data, cuts))):
        outside = re.split(rb"\[redacted:N\d\]", result)
        for secret in secrets:
            plain = secret.strip().encode("utf-8", "surrogatepass")
            assert not any(plain in piece for piece in outside)


# Cost. Bounds are several times what is measured, so that a busy machine does not fail them.


def best_of(runs: int, action: object) -> float:
    assert callable(action)
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def test_a_clean_body_costs_the_same_with_one_value_and_with_two_hundred() -> None:
    rng = random.Random(7)
    values = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEF0123456789", k=32)) for _ in range(200)]
    body = (b'{"text": "a clean body of two hundred bytes, as most of them are", ' * 3)[:200]
    one, many = redactor(values[0]), redactor(*values)

    def hundred(known: Redactor) -> float:
        return best_of(20, lambda: [known.redact(body) for _ in range(100)]) / 100

    assert hundred(many) < 20e-6
    assert hundred(many) < 5 * hundred(one)


@pytest.mark.parametrize(
    "pattern",
    [
        b"clean text ",
        b"ghp_",
        b"a",
        b"\\u0067",
        b"\\u4e2d",
        b"\\",
        b"\\\\u0067",
        TOKEN.encode(),
        b'"1',
        b"12345678,",
    ],
)
def test_the_cost_is_linear_in_the_body(pattern: bytes) -> None:
    known = redactor(TOKEN, "aaaaaaaa", "12345678")
    small, large = (pattern * (size // len(pattern)) for size in (100_000, 800_000))
    assert best_of(2, lambda: known.redact(large)) < 40 * best_of(3, lambda: known.redact(small)) + 0.05
