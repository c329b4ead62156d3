"""Runs what README shows.

    python .ci/readme.py               every ```bash and ```python block, in order, in a folder of its own
    python .ci/readme.py --print test  the block that is marked <!-- test -->, as text

A block under <!-- skip: why --> is shown only; the one under <!-- test --> is run by .ci/run itself.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>bash|python)\n(?P<code>.*?)```", re.S)


def blocks() -> list[tuple[str, str, str]]:
    text = (ROOT / "README.md").read_text("utf-8")
    return [(m["mark"] or "", m["language"], m["code"]) for m in BLOCK.finditer(text)]


def main() -> None:
    if sys.argv[1:2] == ["--print"]:
        print(next(code for mark, _, code in blocks() if mark == sys.argv[2]), end="")
        return
    with tempfile.TemporaryDirectory() as folder:
        for mark, language, code in blocks():
            if mark == "test" or mark.startswith("skip"):
                continue
            print(f"-- {language}\n{code}", flush=True)
            if mark == "install":  # in the checkout itself
                subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=ROOT, check=True)
            elif language == "bash":
                subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=folder, check=True)
            else:
                subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


if __name__ == "__main__":
    main()
