"""The page in a browser: nothing leaves its card on a telephone, and the result is seen at once."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from report_samples import trained_data

from envgen.report.html import write_report

HARNESS = """<!doctype html><body><iframe src="report.html" style="border:0;width:%dpx;height:%dpx"></iframe>
<p id="found"></p><script>
document.querySelector("iframe").onload = ({target}) => {
  const page = target.contentDocument, wide = [];
  for (const card of page.querySelectorAll("section"))
    for (const inner of card.querySelectorAll("*")) {
      const clip = inner.parentElement.closest(".scroll, pre, svg");
      if (!(clip && card.contains(clip)) &&
          inner.getBoundingClientRect().right > card.getBoundingClientRect().right + 1)
        wide.push(card.id + ": " + inner.tagName + "." + inner.getAttribute("class"));
    }
  const headline = page.querySelector(".headline").getBoundingClientRect();
  document.querySelector("#found").textContent = JSON.stringify({
    wide, scroll: page.documentElement.scrollWidth, headline: headline.bottom,
    last: !!page.querySelector("#again")});
};</script>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_nothing_leaves_its_card_and_the_headline_is_on_the_first_screen(
    tmp_path: Path, chromium: str, width: int, height: int
) -> None:
    write_report(tmp_path / "report.html", trained_data())
    (tmp_path / "harness.html").write_text(HARNESS % (width, height))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        result = subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000",
                "--window-size=1400,1000",
                f"http://127.0.0.1:{server.server_port}/harness.html",
            ],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    match = re.search(r'<p id="found">(.+?)</p>', result.stdout)
    assert match, result.stderr
    found = json.loads(unescape(match[1]))
    assert found["last"]
    assert found["wide"] == []
    assert found["scroll"] <= width
    assert 0 < found["headline"] < height
