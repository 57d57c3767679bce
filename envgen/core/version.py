"""The version of envgen; what compilers write may differ between two of them."""

from __future__ import annotations

VERSION = "0.3.0.dev0"
