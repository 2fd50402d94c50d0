"""A headless Chromium that looks at pages, and what a person would see of them.

    with chromium() as browser:
        browser.open("http://127.0.0.1:8080/oracle", width=390, scheme="dark")

Debian's, with its driver; where there is none, a test is skipped with what to install.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

HEIGHT: Final = 900

_CONTRAST: Final = """
const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
const bright = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const parsed = text => (text.match(/[\\d.]+/g) || []).map(Number);
const ground = one => {
  for (; one; one = one.parentElement) {
    const c = parsed(getComputedStyle(one).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c;
  }
  return [255, 255, 255];
};
const worst = [];
for (const one of document.querySelectorAll('main *, header *, footer *')) {
  const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || one.closest('svg') || !one.checkVisibility() || one.closest('.unseen')) continue;
  const a = bright(parsed(getComputedStyle(one).color)), b = bright(ground(one));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const text = one.textContent.trim().slice(0, 40);
  if (ratio < arguments[0]) worst.push(text + ' ' + ratio.toFixed(2));
}
return worst;
"""


class Browser:
    """One window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, width: int = 1280, scheme: str = "light") -> None:
        """Show a page at a width, in a colour scheme."""
        self._command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self._resize(width, HEIGHT)
        self.driver.get(url)

    def complaints(self) -> list[str]:
        """Return what the browser says is wrong, since it was last asked."""
        return [one["message"] for one in self.driver.get_log("browser")]

    def took_s(self) -> float:
        """Return how long the page took, from the request until all of it was there."""
        script = "return performance.getEntriesByType('navigation')[0].duration"
        return float(self.driver.execute_script(script)) / 1000

    def overflows(self) -> bool:
        """Say whether one has to move the page sideways to read it."""
        script = "return document.documentElement.scrollWidth > innerWidth"
        return bool(self.driver.execute_script(script))

    def faint(self, *, below: float = 4.5) -> list[str]:
        """Return the texts whose contrast with what is behind them is too low."""
        found: list[str] = self.driver.execute_script(_CONTRAST, below)
        return found

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> tuple[str, bool]:
        """Return the text of what has the focus, and whether one sees that it has it."""
        script = (
            "const one = document.activeElement, style = getComputedStyle(one);"
            "const box = one.getBoundingClientRect();"
            "return [one.innerText || one.value || one.id, style.outlineStyle !== 'none' &&"
            " parseFloat(style.outlineWidth) >= 2 && box.right > 0 && box.bottom > 0]"
        )
        text, is_seen = self.driver.execute_script(script)
        return " ".join(text.split()), bool(is_seen)

    def text(self) -> str:
        """Return what one reads."""
        return str(self.driver.execute_script("return document.body?.innerText ?? ''"))

    def photograph(self, path: Path, *, height: int, words: dict[str, str]) -> None:
        """Write the top of the page as a small picture, some of its words replaced."""
        from PIL import Image

        for word, other in words.items():
            self.driver.execute_script(
                "const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);"
                "for (let one; (one = all.nextNode());)"
                " one.textContent = one.textContent.replaceAll(arguments[0], arguments[1]);",
                word,
                other,
            )
        self._resize(1080, height)
        raw = path.with_suffix(".raw.png")
        self.driver.save_screenshot(str(raw))
        with Image.open(raw) as picture:
            picture.convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
        raw.unlink()

    def _resize(self, width: int, height: int) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def _command(self, name: str, **words: Any) -> None:
        self.driver.execute_cdp_cmd(name, words)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start one, and end it."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    places = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in places:
        pytest.skip("no Chromium with its driver; install Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = places[0]
    for word in (
        "--headless=new",
        "--no-sandbox",  # root has none
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-proxy-server",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(places[1]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
