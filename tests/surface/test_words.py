"""The page of words names what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"   \* - (.+)\n     - (.+)\n     - (.+)\n     - (.+)\n", (ROOT / ".docs" / "words.rst").read_text("utf-8")
)


def test_the_page_has_forty_terms_each_once() -> None:
    assert 40 <= len(ROWS) - 1 <= 50
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_every_class_and_function_of_the_page_is_in_its_room() -> None:
    missing = []
    for _, here, _, room in ROWS[1:]:
        folder = ROOT / "workbench" / room.strip("`")
        texts = [path.read_text("utf-8") for path in folder.rglob("*.py")]
        for name in re.findall(r"``([A-Z]\w+|walk|gradcheck|compare)``", here):
            if not any(re.search(rf"^(?:class|def| +def) {name}\b", text, re.MULTILINE) for text in texts):
                missing.append((name, room))
    assert missing == []
