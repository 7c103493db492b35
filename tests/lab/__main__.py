"""``make lab``: rounds until the time is over, each with a seed of its own. See ``docs/testing.md``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.lab.campaign import Campaign
from tests.lab.rules_round import Size


def main() -> int:
    """Return 1 if a round failed."""
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of all rounds (1)")
    parser.add_argument("--round", type=int, help="run this round alone, to repeat a failure")
    parser.add_argument("--minutes", type=float, default=60, help="no round begins later than this (60)")
    parser.add_argument(
        "--resume", action="store_true", help="continue after the last round of this seed in the folder"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/lab"), help="results and logs (build/lab)")
    parser.add_argument("--events", type=int, default=Size().events, help=f"events of a round ({Size().events})")
    parser.add_argument("--per-second", type=float, default=Size().per_second, help="pace of the events (200)")
    parser.add_argument("--report", action="store_true", help="only the figures of the rounds in the folder")
    given = parser.parse_args()
    campaign = Campaign(given.folder.absolute(), given.seed, Size(given.events, given.per_second))
    if given.report:
        campaign.report()
        return 0
    return campaign.run(given.minutes, resume=given.resume, only=given.round)


if __name__ == "__main__":
    sys.exit(main())
