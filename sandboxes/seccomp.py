"""The system-call filter of bubblewrap sandboxes, as the classic BPF program that bwrap loads.

It takes away what would undo the other limits: new namespaces (in one of its own a program could
mount a file system of any size), io_uring (which no filter sees), keyrings (which count nowhere) and
a few rarely needed doors into the kernel. A refused call fails with EPERM. ``clone3`` fails with
ENOSYS, since its flags can't be looked at; C libraries then use ``clone``.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the ``seccomp_data`` that a filter sees."""
NEW_NAMESPACES = 0x7E02_0000
_X32 = 0x4000_0000
_CLONE3 = 435

_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsmount": 432,
    "mount_setattr": 442,
}
_SOCKETS = {"x86_64": (41, 53), "aarch64": (198, 199)}
"""``socket`` and ``socketpair``."""
FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: a network namespace shuts in these, and not vsock."""
_MACHINES: dict[str, tuple[int, int, dict[str, int], dict[str, int]]] = {
    # machine: (audit number, clone, denied, denied where total memory is not limited)
    "x86_64": (
        0xC000_003E,
        56,
        {
            "pivot_root": 155,
            "mount": 165,
            "umount2": 166,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "setns": 308,
            "bpf": 321,
            "userfaultfd": 323,
        },
        {"shmget": 29, "memfd_create": 319, "memfd_secret": 447},
    ),
    "aarch64": (
        0xC000_00B7,
        220,
        {
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "unshare": 97,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "perf_event_open": 241,
            "setns": 268,
            "bpf": 280,
            "userfaultfd": 282,
        },
        {"shmget": 194, "memfd_create": 279, "memfd_secret": 447},
    ),
}


def program(*, memory_is_limited: bool) -> bytes | None:
    """The filter for this machine; None for a machine whose call numbers are not known here.

    Memory that belongs to no process (memfd, System V segments) is refused unless a control group
    counts it.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return None
    audit, clone, denied, unaccounted = _MACHINES[machine]
    numbers = {**_EVERYWHERE, **denied, **({} if memory_is_limited else unaccounted)}
    steps = [
        _step(_LOAD, _MACHINE),
        _step(_JUMP_EQUAL, audit, 1, 0),
        _fail(errno.ENOSYS),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_AT_LEAST, _X32, 0, 1), _fail(errno.ENOSYS)]
    steps += [_step(_JUMP_EQUAL, _CLONE3, 0, 1), _fail(errno.ENOSYS)]
    for number in sorted(numbers.values()):
        steps += [_step(_JUMP_EQUAL, number, 0, 1), _fail(errno.EPERM)]
    for number in _SOCKETS[machine]:
        steps += _only_families(number)
    steps += [
        _step(_JUMP_EQUAL, clone, 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JUMP_BITS, NEW_NAMESPACES, 0, 1),
        _fail(errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def _only_families(number: int) -> list[bytes]:
    """Refuse a call of this number whose first argument is no allowed address family."""
    count = len(FAMILIES)
    allowed = [_step(_JUMP_EQUAL, name, count - at, 0) for at, name in enumerate(FAMILIES)]
    inner = [
        _step(_LOAD, _FIRST_ARGUMENT),
        *allowed,
        _fail(errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    return [_step(_JUMP_EQUAL, number, 0, len(inner)), *inner]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _fail(error: int) -> bytes:
    return _step(_RETURN, _ERROR | error)
