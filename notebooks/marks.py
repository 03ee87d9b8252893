"""The marks of a folder of notebooks, as a table or as CSV: python notebooks/marks.py FOLDER [--csv]

A cell counts if its metadata are nbgrader's: {"nbgrader": {"grade": true, "grade_id": "spring", "points": 2}}. Its
outputs count as they are stored, as nbgrader counts them: 0 after an error, else the number that the cell ends with,
else all points; a cell that was not run has 0. Who does not trust what is stored runs it first:

    jupyter nbconvert --to notebook --execute --allow-errors --inplace FOLDER/*.ipynb

Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def points(cell: dict[str, Any], most: float) -> float:
    """What a graded cell has earned, of `most`."""
    outputs = cell.get("outputs", [])
    failed = any(o["output_type"] == "error" or o.get("name") == "stderr" for o in outputs)
    if failed or cell.get("execution_count") is None:
        return 0.0
    ends = ["".join(o["data"].get("text/plain", "")) for o in outputs if o["output_type"] == "execute_result"]
    try:
        return max(0.0, min(float(ends[0]), most)) if ends else most
    except ValueError:
        return most


def marks(folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """Of each graded cell in the folder and below: notebook, grade id, points, the most there are."""
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            graded = cell["metadata"].get("nbgrader", {})
            if graded.get("grade"):
                most = float(graded["points"])
                yield path.relative_to(folder).as_posix(), graded["grade_id"], points(cell, most), most


def main() -> None:
    parser = argparse.ArgumentParser("python notebooks/marks.py", description="The marks of a folder of notebooks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--csv", action="store_true", help="as comma-separated values")
    asked = parser.parse_args()
    rows = list(marks(asked.folder))
    if asked.csv:
        csv.writer(sys.stdout).writerows([("notebook", "exercise", "points", "of"), *rows])
        return
    wide = [max((len(row[k]) for row in rows), default=0) for k in (0, 1)]
    for notebook, name, got, most in rows:
        print(f"{notebook:{wide[0]}}  {name:{wide[1]}}  {got:g} of {most:g}")
    print(f"{sum(row[2] for row in rows):g} of {sum(row[3] for row in rows):g}")


if __name__ == "__main__":
    main()
