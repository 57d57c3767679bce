from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from git_history import History

from envgen.core.errors import ConfigError
from envgen.core.patch_reverse import reverse_patch
from envgen.core.patches import split_patch


def test_the_reverse_restores_the_base_and_its_reverse_is_the_patch(tmp_path: Path) -> None:
    history = History(tmp_path / "r")
    long = "".join(f"line {i}\n" for i in range(60))
    base = history.commit(
        "base",
        {
            **{"moved.txt": long, "gone.txt": "bye\n", "blob.bin": b"\0\1\2", "run.sh": "x\n"},
            **{
                "a b.txt": long,
                "end.txt": "a\nb",
                "m\u00e9.txt": long + "x\n",
                "old.bin": b"\0" * 99,
            },
        },
    )
    (history.folder / "moved.txt").rename(history.folder / "new place.txt")
    (history.folder / "m\u00e9.txt").rename(history.folder / "n\u00e9.txt")
    (history.folder / "run.sh").chmod(0o755)
    changed = (
        long.replace("line 3\n", "three\n").replace("line 40\n", "").replace("line 50", "a\nb\nc")
    )
    head = history.commit(
        "head",
        {
            **{"gone.txt": None, "blob.bin": b"\0\1\3", "new.txt": "hi", "a b.txt": changed},
            **{"end.txt": "a\nc\n", "n\u00e9.txt": long + "y", "old.bin": None, "new.bin": b"\0\7"},
        },
    )
    args = ["git", "diff", "--binary", "--full-index", "-M", base, head]
    patch = subprocess.run(args, cwd=history.folder, capture_output=True, check=True).stdout
    undo = reverse_patch(patch)
    history.git("apply", "--index", "-", stdin=undo)
    assert history.git("write-tree") == history.git("rev-parse", f"{base}^{{tree}}")
    again = reverse_patch(undo)
    assert {p.path: p.text for p in split_patch(again)} == {
        p.path: p.text for p in split_patch(patch)
    }


@pytest.mark.parametrize(
    "patch",
    [
        b"diff --git a/x b/y\ncopy from x\ncopy to y\n",
        b"diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n",
        b"diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nIcmZPo\n\n",
    ],
)
def test_what_has_no_reverse_is_refused(patch: bytes) -> None:
    with pytest.raises(ConfigError):
        reverse_patch(patch)
