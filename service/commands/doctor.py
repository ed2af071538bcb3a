"""``attributary doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--write/--no-write",
    default=True,
    help="Whether to cancel a request that nobody made: tells permissions, and the broker's clock.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="The most that a check may take: with many sketches, reading all manifests takes a while.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def doctor(write: bool, seconds: float, as_json: bool) -> int:
    """Check the broker, the topics, the workers and the accounting, and say what to do.

    \b
    versions     what is installed here
    broker       whether the addresses answer
    topics       all there, with the cleanup policy, retention, message size and partitions they need
    groups       how many workers run, and whether their groups have settled
    permissions  whether this client may read all topics, and write the one for cancellations
    clock        whether this machine's clock, the broker's and the workers' agree
    requests     whether requests for explanations wait for nobody
    lag          whether rows wait, and whether they are being counted, partition by partition
    accounting   gaps, double counts, a log that lost its end, and the share of rows lately rejected
    grids        models whose rows wait for a grid; windows wider than sketches are kept
    results      whether accepted rows come out as results, which can be read
    snapshots    whether what a new worker starts from is fresh

    Every line is ok, warn or fail; below it stands what to do. Limits of the broker in memory are no
    failures: what it does not tell is not judged.

    \b
    Examples:
      attributary --bootstrap broker:9092 doctor
      attributary doctor --json | jq '.checks[] | select(.level != "ok")'

    Exit code 0: nothing failed; 1: something did; 2: it could not begin.
    """
    from attributary.service.doctor.report import run_doctor
    from attributary.service.global_options import current_options

    return run_doctor(current_options(), write=write, seconds=seconds, as_json=as_json)
