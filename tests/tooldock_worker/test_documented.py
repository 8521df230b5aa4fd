"""The examples on the page about resources and prompts load and say what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "resources-and-prompts.md"
PROBE = """
import json, sys
from pathlib import Path
from tooldock_worker.load import load

loaded = load(Path(sys.argv[1]))
book, arguments = loaded.resource("library://books/2?language=et")
letter = loaded.prompts["overdue"]
seen = {part: [item["name"] for item in items] for part, items in loaded.describe().items()}
seen["book"] = json.loads(book.encode(book.fn(**book.bind(arguments)), "library://books/2"))["contents"][0]["text"]
seen["letter"] = json.loads(letter.encode(letter.fn(**letter.bind({"title": "Emma", "days": "3"})), ""))["messages"]
json.dump(seen, sys.stdout)
"""


def test_the_page_s_files_load_and_serve_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# tools/library/(\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, timeout=60, cwd=tmp_path.parent
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["tools"], seen["resources"]) == (["lend", "stocktaking"], ["motto"])
    assert (seen["templates"], seen["prompts"]) == (["book"], ["overdue"])
    assert seen["book"] == "Ulysses (et)"
    assert [message["role"] for message in seen["letter"]] == ["user", "assistant"]
    assert seen["letter"][0]["content"]["text"] == "Write a warm letter: 'Emma' is 3 day(s) late."
