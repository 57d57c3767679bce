from __future__ import annotations

import pytest

from envgen.pipelines.code.formats.ids import match_ids, published_id

PYTEST = "tests/test_a.py::tests.test_a.TestB::test_c[x::y z]"


@pytest.mark.parametrize(
    ("published", "reported"),
    [
        ("tests/test_a.py::TestB::test_c[x::y z]", PYTEST),
        ("tests/test_a.py::test_d", "tests/test_a.py::tests.test_a::test_d"),
        ("test_d (m.C)", "m.C::test_d"),
        ("test_d (m.C.test_d)", "m.C::test_d"),
        ("m.C.test_d", "m.C::test_d"),
        ("TestLog", "example.org/mod/trace::TestLog"),
        ("trace/TestLog/sub_1", "example.org/mod/trace::TestLog/sub_1"),
        ("example.org/mod/trace/TestLog", "example.org/mod/trace::TestLog"),
        ("com.x.FooTest#bar", "com.x.FooTest::bar"),
        ("com.x.FooTest.bar", "com.x.FooTest::bar"),
        ("adds two [1.3 ms]", "lib/a.test.js::suite::adds two"),
        ("suite > adds", "lib/a.test.js::suite::adds"),
        (PYTEST, PYTEST),
    ],
)
def test_each_style_finds_its_test(published: str, reported: str) -> None:
    others = ["other::thing", "tests/test_z.py::tests.test_z::test_q"]
    assert match_ids([published], [*others, reported])[published] == (reported,)


def test_a_cut_id_finds_what_it_began() -> None:
    found = match_ids(["tests/test_a.py::TestB::test_c[x::y", "no[t"], [PYTEST, "a::b"])
    assert list(found.values()) == [(PYTEST,), ()]


def test_a_bare_name_names_all_of_its_kind() -> None:
    found = match_ids(["TestX", "TestY"], ["p/a::TestX", "p/b::TestX"])
    assert found == {"TestX": ("p/a::TestX", "p/b::TestX"), "TestY": ()}


def test_a_function_is_not_the_method_of_its_name() -> None:
    function, method = "f.py::f::test_odd[a b]", "f.py::f.TestIn::test_odd[a b]"
    names = ["f.py::test_odd[a b]", "f.py::TestIn::test_odd[a b]", "test_odd[a b]"]
    found = match_ids(names, [method, function])
    assert found == {names[0]: (function,), names[1]: (method,), names[2]: (method, function)}


def test_names_of_another_machine_find_their_test() -> None:
    held = {"f.py::f::t[<tmp>/x]": "f.py::f::t[/tmp/cache/x]", "f.py::f::t[<address>]": ""}
    names = ["f.py::t[/tmp/cache/x]", "f.py::t[/tmp/other/x]", "f.py::t[0x7f0011223344]"]
    found = match_ids(names, held, held)
    assert [ids[0] for ids in found.values()] == [*held][:1] * 2 + [*held][1:]


@pytest.mark.parametrize(
    ("test", "published"),
    [
        (PYTEST, "tests/test_a.py::TestB::test_c[x::y z]"),
        ("test_a.py::test_a::test_d", "test_a.py::test_d"),
        (
            "src/pkg/tests/test_a.py::tests.test_a.T::t",
            "src/pkg/tests/test_a.py::tests::test_a::T::t",
        ),
        ("com.x.FooTest::bar", "com.x.FooTest.bar"),
        ("suite::adds two", "suite > adds two"),
        ("lone", "lone"),
    ],
)
def test_our_ids_are_written_as_the_field_does(test: str, published: str) -> None:
    assert published_id(test) == published
