"""The system-call filter that a confined worker installs, so that it can affect no other process.

The workers of an environment and the zygote that forks them share a uid. Without the filter a worker could
stop the zygote, so that no later episode starts, take its descriptors or lower its limits. With it a worker
may signal and limit only itself. Memory that belongs to no process (memfd, System V segments and queues) is
refused, because no limit of a worker counts it.
"""

from __future__ import annotations

import errno
import platform
import struct

OWN_PID = 0x7EDC_BA98
"""Stands for the worker's own number, which it fills in."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24
_X32 = 0x4000_0000
_SET_OWNER = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: a descriptor that signals another process."""
_IOCTL_OWNER = (0x8901, 0x8902)
_OWN_ONLY = ("kill", "tkill", "tgkill", "prlimit64")
_NUMBERS = {
    # name: (x86_64, aarch64)
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "prlimit64": (302, 261),
    "fcntl": (72, 25), "ioctl": (16, 29),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "kcmp": (312, 272), "process_madvise": (440, 440),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "setpgid": (109, 154),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}


def program() -> bytes | None:
    """The filter for this machine; None if the numbers of its system calls are not known."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return None
    column, audit = _MACHINES[platform.machine()]
    numbers = {name: pair[column] for name, pair in _NUMBERS.items()}
    steps = [_step(_LOAD, _MACHINE), _step(_JUMP_EQUAL, audit, 1, 0), _fail(errno.ENOSYS)]
    steps += [_step(_LOAD, _NUMBER), _step(_JUMP_AT_LEAST, _X32, 0, 1), _fail(errno.ENOSYS)]
    for name in _OWN_ONLY:
        own = [OWN_PID, *([0] if name == "prlimit64" else [])]
        steps += _branch(numbers.pop(name), _FIRST, own, allowed=True)
    steps += _branch(numbers.pop("fcntl"), _SECOND, _SET_OWNER, allowed=False)
    steps += _branch(numbers.pop("ioctl"), _SECOND, _IOCTL_OWNER, allowed=False)
    for number in sorted(numbers.values()):
        steps += [_step(_JUMP_EQUAL, number, 0, 1), _fail(errno.EPERM)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _branch(
    number: int, argument: int, values: list[int] | tuple[int, ...], *, allowed: bool
) -> list[bytes]:
    """Allow or refuse a call depending on whether an argument is among ``values``."""
    found = _step(_RETURN, _ALLOW) if allowed else _fail(errno.EPERM)
    other = _fail(errno.EPERM) if allowed else _step(_RETURN, _ALLOW)
    body = [_step(_LOAD, argument)]
    for value in values:
        body += [_step(_JUMP_EQUAL, value, 0, 1), found]
    body.append(other)
    return [_step(_JUMP_EQUAL, number, 0, len(body)), *body]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _fail(error: int) -> bytes:
    return _step(_RETURN, _ERROR | error)
