"""A sensor that watches the disk of the embedded stack, because Kafka stops when the disk is full."""

import dagster as dg

from lakehouse.core.errors import LakehouseError


@dg.sensor(
    name="disk_space",
    description="Fails while the disk of the embedded stack is almost full. Requests no runs.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def disk_space(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Report the free space.

    Raises:
        LakehouseError: The disk is almost full.
    """
    from lakehouse.local.home import Home

    home = Home.default()
    if warning := home.space_warning():
        raise LakehouseError(warning)
    return dg.SkipReason(f"{home.free_bytes() / 1024**3:.1f} GiB are free")
