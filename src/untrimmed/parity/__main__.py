"""`python -m untrimmed.parity CASE_FOLDER [--method M]` prints a line per array and returns an exit status.

The status is 1 if an array differs by more than its tolerance, and 2 after an error.
"""

import argparse
import sys
from pathlib import Path

from untrimmed.errors import EXTRAS, UntrimmedError, install_advice


def main(arguments: list[str] | None = None) -> int:
    """Run one case, print one line for each compared array, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m untrimmed.parity", description=__doc__)
    parser.add_argument(
        "case", type=Path, help="a folder with config.json and expected.npz, e.g. tests/parity/cases/ms-sl/loss"
    )
    parser.add_argument("--method", help="method of the case; default: from config.json, else the parent folder's name")
    options = parser.parse_args(arguments)
    try:
        from untrimmed.parity.registry import run_case

        results = run_case(options.case, options.method)
    except UntrimmedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        print(f"error: parity needs {error.name!r}; {install_advice(EXTRAS[error.name])}", file=sys.stderr)
        return 2
    for result in results:
        print(result)
    failed = sum(not result.passed for result in results)
    print(f"{len(results)} arrays, {failed} outside their tolerance")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
