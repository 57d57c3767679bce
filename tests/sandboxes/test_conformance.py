from __future__ import annotations

import pytest

from envgen.core.errors import ContractError, SandboxUnavailableError
from envgen.sandboxes.base import (
    BACKENDS,
    Guarantee,
    Mount,
    SandboxSpec,
    available,
    create,
    guarantees,
)
from envgen.sandboxes.check import check_sandbox

MARKS = {"bubblewrap": [pytest.mark.bwrap], "docker": [pytest.mark.docker], "process": []}
PROMISES = [
    pytest.param(name, guarantee, marks=MARKS[name], id=f"{name}-{guarantee}")
    for name in BACKENDS
    for guarantee in sorted(guarantees(name))
]


@pytest.mark.parametrize(("backend", "guarantee"), PROMISES)
def test_backend_keeps_its_promise(backend: str, guarantee: Guarantee) -> None:
    assert check_sandbox(backend, [guarantee]) == {guarantee}


@pytest.mark.parametrize("lie", sorted(set(Guarantee) - {Guarantee.PROCESSES}))
def test_check_catches_a_liar(lie: Guarantee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVGEN_LIE", lie)
    with pytest.raises(ContractError, match=lie):
        check_sandbox("lying_backend", [lie])


def test_check_catches_a_liar_about_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVGEN_LIE", "processes")
    monkeypatch.setattr("envgen.sandboxes.check._PROCESSES", "print(33)")
    with pytest.raises(ContractError, match="processes"):
        check_sandbox("lying_backend", [Guarantee.PROCESSES])


def test_check_catches_an_undeclared_need_that_is_let_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("envgen.sandboxes.base._refusal", lambda *_: "")
    with pytest.raises(ContractError, match="needed and not declared"):
        check_sandbox("process", [])


def test_create_refuses_an_undeclared_guarantee() -> None:
    with pytest.raises(SandboxUnavailableError, match="does not guarantee network"):
        create(SandboxSpec(needs=frozenset({Guarantee.NETWORK})), "process", trust=True)


def test_process_refuses_untrusted_code() -> None:
    with pytest.raises(SandboxUnavailableError, match="not trusted") as caught:
        create(SandboxSpec(), "process")
    assert "trust=True" in caught.value.hint


@pytest.mark.parametrize(
    ("backend", "spec"),
    [
        ("process", SandboxSpec(image="x")),
        ("process", SandboxSpec(mounts=(Mount(source="/usr", target="/x"),))),
        ("bubblewrap", SandboxSpec(image="x")),
        ("docker", SandboxSpec(root="/")),
        ("docker", SandboxSpec(mounts=(Mount(source="/a:/usr:rw,x", target="/b"),))),
        ("no_such_backend", SandboxSpec()),
    ],
)
def test_create_refuses_what_a_backend_cannot_do(backend: str, spec: SandboxSpec) -> None:
    with pytest.raises(SandboxUnavailableError):
        create(spec, backend, trust=True)


def test_available_names_every_backend() -> None:
    reasons = available()
    assert set(reasons) == set(BACKENDS)
    assert reasons["process"] == ""
