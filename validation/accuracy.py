"""How accurate dpsim is on published measurements, and the gate that keeps it so.

python validation/accuracy.py            write accuracy.md and accuracy.json again
python validation/accuracy.py --check    exit 1, saying why, where they are stale, or where
                                         predictions are worse than what is accepted
python validation/accuracy.py --revision N --because REASON
                                         accept figures that are worse, or about other tables;
                                         CHANGELOG.md must say so under "Changed predictions":
                                         "`accuracy` revision N: REASON"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _accuracy_gate import Broken, Kept, Now, Stopped, check, read, renewed, revised
from _accuracy_page import page

HERE = Path(__file__).resolve().parent
JSON, PAGE = HERE / "accuracy.json", HERE / "accuracy.md"
CHANGELOG = HERE.parent / "CHANGELOG.md"


def text_of(path: Path) -> str | None:
    """The text of a file; None where there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


def own_page(text: str | None) -> str:
    """The page that follows from accuracy.json; empty where nothing does."""
    try:
        return page(read(text))
    except (Broken, KeyError, TypeError, ValueError, AttributeError):
        return ""


def checked(now: Now) -> int:
    """Print what is wrong with the files; 1 where something is."""
    text, shown = text_of(JSON), text_of(PAGE)
    findings = check(text, shown, own_page(text), now, text_of(CHANGELOG) or "")
    for finding in findings:
        print(f"accuracy: {finding}")
    print("accuracy: " + ("FAILED; see CONTRIBUTING.md" if findings else "as accepted"))
    return 1 if findings else 0


def written(now: Now, revision: int | None, because: str) -> int:
    """Write both files, or print why not; 1 then."""
    text = text_of(JSON)
    try:
        kept: Kept = (
            renewed(text, now)
            if revision is None
            else revised(text, now, text_of(CHANGELOG) or "", revision, because)
        )
    except Stopped as stopped:
        for finding in stopped.findings:
            print(f"accuracy: {finding}")
        print("accuracy: nothing was written")
        return 1
    document, shown = kept.text(), page(kept)
    JSON.write_text(document, encoding="utf-8", newline="\n")
    PAGE.write_text(shown, encoding="utf-8", newline="\n")
    print(f"accuracy: {JSON.name} and {PAGE.name} are written, revision {kept.revision}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    parser.add_argument("--revision", type=int, metavar="N", help="accept, as revision N")
    parser.add_argument("--because", default="", metavar="REASON", help="why it is accepted")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    chosen = parser.parse_args(arguments)
    if chosen.check and (chosen.revision is not None or chosen.because):
        parser.error("--check writes nothing, so it takes neither --revision nor --because")
    if (chosen.revision is None) != (not chosen.because):
        parser.error("--revision and --because go together")
    from _accuracy_figures import fresh

    now = fresh(chosen.jobs)
    return checked(now) if chosen.check else written(now, chosen.revision, chosen.because)


if __name__ == "__main__":
    sys.exit(main())
