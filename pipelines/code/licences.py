"""Name a repository's licence by the sentences that every copy of it holds."""

from __future__ import annotations

import re

from envgen.pipelines.code.clone import Clone

_FILE = re.compile(r"^(licen[cs]e|copying|unlicense)([-._][\w.-]*)?$", re.IGNORECASE)
_MARKS = (
    ("Apache-2.0", ("apache license", "version 2.0")),
    ("AGPL-3.0", ("gnu affero general public license", "version 3")),
    ("LGPL-3.0", ("gnu lesser general public license", "version 3")),
    ("LGPL-2.1", ("gnu lesser general public license", "version 2.1")),
    ("GPL-3.0", ("gnu general public license", "version 3")),
    ("GPL-2.0", ("gnu general public license", "version 2")),
    ("MPL-2.0", ("mozilla public license", "2.0")),
    ("BSL-1.0", ("boost software license", "version 1.0")),
    ("Unlicense", ("free and unencumbered software released into the public domain",)),
    ("ISC", ("permission to use, copy, modify, and/or distribute this software for any",)),
    ("MIT", ("permission is hereby granted, free of charge, to any person obtaining a copy",)),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "neither the name")),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "the names of")),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms",)),
    ("PSF-2.0", ("python software foundation license",)),
)


def licence_of(clone: Clone, commit: str) -> str:
    """The SPDX id of the licence file at the root of a tree; empty when none is recognised."""
    for path in clone.files(commit):
        if _FILE.match(path):
            found = licence_text(clone.read(commit, path).decode("utf-8", "replace"))
            if found:
                return found
    return ""


def licence_text(text: str) -> str:
    """The SPDX id of a licence's text; empty when it is not recognised."""
    plain = " ".join(text.lower().split())
    for name, marks in _MARKS:
        if all(mark in plain for mark in marks):
            return name
    return ""
