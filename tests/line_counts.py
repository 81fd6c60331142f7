"""Prints lines by package, long functions and long files: `make report`."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG_FUNCTION = 60
LONG_FILE = 400


def main() -> None:
    packages: Counter[str] = Counter()
    files = []
    functions = []
    for folder in (ROOT / "src" / "untrimmed", ROOT / "tests"):
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(ROOT).as_posix()
            count = len(text.splitlines())
            inside = path.relative_to(folder).parts
            packages[f"{folder.name}/{inside[0] if len(inside) > 1 else ''}"] += count
            packages[f"{folder.name} as a whole"] += count
            if count > LONG_FILE:
                files.append((count, name))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = node.end_lineno - node.lineno + 1
                    if length > LONG_FUNCTION:
                        functions.append((length, f"{name}: {node.name}"))
    for title, rows in (
        ("lines by package", [(count, name) for name, count in packages.items()]),
        (f"files of more than {LONG_FILE} lines", files),
        (f"functions of more than {LONG_FUNCTION} lines", functions),
    ):
        print(f"{title}: {len(rows)}")
        for count, name in sorted(rows, reverse=True):
            print(f"{count:8,}  {name}")


if __name__ == "__main__":
    main()
