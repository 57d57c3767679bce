"""Broken XML: what is mended keeps every case and status, what is cut off is an error, nothing crashes."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen.core.code_types import Status
from envgen.core.errors import ReportError
from envgen.verifiers.junit import read_junit

REPORTS = Path(__file__).resolve().parents[2] / "data" / "junit" / "reports"
BREAKS = (b"", b"<", b"&", b"\0", b'"', b"]]>", b"<testcase")
FILES = sorted(REPORTS.glob("*/*.xml"))
GOOD = (
    "<testsuites><testsuite name='s'>"
    "<testcase classname='c' name='a'/>"
    "<testcase classname='c' name='b'><failure message='{}'>{}</failure></testcase>"
    "<testcase classname='c' name='d'/></testsuite></testsuites>"
)
STATUSES = {"c::a": Status.PASS, "c::b": Status.FAIL, "c::d": Status.PASS}


@pytest.mark.parametrize(
    "text",
    [
        "\x00 \x1b[31m \x0b \ufffe",
        "&#x1B;[31mred&#27;[0m &#0; &#xD800; &#99999999999999999999;",
        "a & b && c; &nbsp; &undefined;",
        "if (a < b) { return <div>; } </div> <br/> <testcases/>",
        "x ]]> y",
    ],
)
def test_messages_that_are_no_xml_are_mended(text: str) -> None:
    report = read_junit(GOOD.format("message", text).encode("utf-8", "surrogatepass"))
    assert report.repaired
    assert report.statuses() == STATUSES


def test_what_breaks_attributes_is_mended() -> None:
    for value in ("a < b & c", 'say "so"', "it's", 'x="1" y', "a > b", "/> or >"):
        report = read_junit(GOOD.replace("'{}'", f'"{value}"').format("").encode())
        assert report.statuses() == STATUSES, value
        assert report.cases[1].message == value


def test_an_attribute_that_is_there_twice_is_mended() -> None:
    text = GOOD.format("m", "").replace("name='a'", "name='a' name='z'")
    report = read_junit(text.encode())
    assert report.repaired
    assert report.statuses() == STATUSES


def test_noise_around_a_report_and_several_reports_in_a_file_are_mended() -> None:
    good = GOOD.format("m", "t")
    report = read_junit(f"warning: <x>\n{good}\nDone in 3 s. </x>\n".encode())
    assert report.repaired
    assert report.statuses() == STATUSES
    other = '<?xml version="1.0"?><testsuite><testcase classname="c" name="e"/></testsuite>'
    report = read_junit(f"{good}{other}".encode())
    assert report.statuses() == STATUSES | {"c::e": Status.PASS}


def test_comments_and_sections_hold_no_cases() -> None:
    forged = "<testcase classname='c' name='forged'/>"
    text = GOOD.format("m & m", f"<![CDATA[{forged}]]><!-- {forged} -->")
    report = read_junit(text.encode())
    assert report.repaired
    assert report.statuses() == STATUSES


def test_bytes_of_other_encodings() -> None:
    text = GOOD.format("Grüße", "ü")
    for encoding, declared in (
        ("utf-16", "utf-16"),
        ("utf-8-sig", "utf-8"),
        ("latin-1", "iso-8859-1"),
    ):
        content = f'<?xml version="1.0" encoding="{declared}"?>{text}'.encode(encoding)
        report = read_junit(content)
        assert (report.cases[1].message, report.repaired) == ("Grüße", False), encoding
    lying = f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode()
    assert read_junit(lying).cases[1].message == "Grüße"
    wrong = read_junit(text.encode("latin-1"))
    assert (wrong.cases[1].message, wrong.repaired) == ("Gr\ufffd\ufffde", True)


def test_a_document_type_is_never_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    for opening in (bomb, "\ufeff\ufeff" + bomb, "<!-- c -->\n<?x y?>" + bomb):
        report = read_junit((opening + GOOD.format("m", "&b;&b;")).encode())
        assert report.statuses() == STATUSES
        assert "aaa" not in report.model_dump_json()
    outside = '<!DOCTYPE x SYSTEM "file:///etc/passwd">' + GOOD.format("m", "t")
    assert read_junit(outside.encode()).statuses() == STATUSES


def test_deep_nesting_is_read_or_refused() -> None:
    deep = "<testsuite>" * 50_000 + "<testcase name='a'/>" + "</testsuite>" * 50_000
    assert read_junit(deep.encode()).statuses() == {"::a": Status.PASS}
    with pytest.raises(ReportError, match="nests deeper"):
        read_junit(f"{deep}&".encode())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_real_reports_that_are_cut_anywhere_are_errors(path: Path) -> None:
    content = path.read_bytes().rstrip()
    draw = random.Random(path.name)
    for end in sorted(draw.sample(range(1, len(content) - 1), 60)):
        with pytest.raises(ReportError):
            read_junit(content[:end])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_mangled_real_reports_never_crash(path: Path) -> None:
    content = path.read_bytes()
    draw = random.Random(path.name)
    for _ in range(150):
        mangled = bytearray(content)
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(mangled))
            what = draw.choice((*BREAKS, bytes([draw.randrange(256)])))
            mangled[at : at + draw.randint(0, 3)] = what
        _read_or_refuse(bytes(mangled))


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    _read_or_refuse(content)


PIECES = (
    "<testsuites> </testsuites> <testsuite > <testcase|name='a' /> <failure <!-- --> <![CDATA[ ]]> <?xml ?> "
    "<!DOCTYPE [ &#x1b; & ' \" |message= </testcase>"
)


@given(st.lists(st.sampled_from(PIECES.split()) | st.text(max_size=4), max_size=30))
@settings(max_examples=500)
def test_any_pieces_of_reports_are_read_or_refused(pieces: list[str]) -> None:
    _read_or_refuse("".join(pieces).replace("|", " ").encode("utf-8", "surrogatepass"))


def _read_or_refuse(content: bytes) -> None:
    with suppress(ReportError):
        report = read_junit(content)
        assert len(report.statuses()) == len(report.cases)
