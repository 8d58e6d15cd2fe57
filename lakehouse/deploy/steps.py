"""Everything a deployment consists of, in the order in which it is made; it is taken away in the reverse."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.config.loader import Config
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.aws.steps import aws_steps
from lakehouse.deploy.confluent.steps import confluent_steps
from lakehouse.deploy.credentials import Access
from lakehouse.deploy.snowflake.steps import snowflake_steps
from lakehouse.deploy.step import Step


def deployment_steps(config: Config, access: Access, clock: Clock = REAL) -> list[Step]:
    """The steps. Nothing connects before one of them is looked up.

    Parameters: `clock` is the time by which is waited.
    """
    names, deployment = access.names, access.deployment
    return ordered(
        [
            *aws_steps(access.session, names, config, deployment, clock),
            *confluent_steps(access.confluent, access.secrets, names, config, deployment, clock),
            *snowflake_steps(
                access.administrator,
                access.secrets,
                names,
                config,
                deployment,
                access.warehouse,
                clock,
                access.rest_catalog,
            ),
        ]
    )


def ordered(steps: Sequence[Step]) -> list[Step]:
    """The steps as they are given, but for those whose needs come later: they come right after those.

    The clouds need each other in turns: a role in AWS trusts what Confluent answered, whose next step uses the role.

    Raises: ValueError when a need is in no step, or steps need each other.
    """
    rest, done = list(steps), list[Step]()
    names: set[str] = set()
    while rest:
        step = next((step for step in rest if names.issuperset(step.needs)), None)
        if step is None:
            raise ValueError(f"never satisfied: {', '.join(step.name for step in rest)}")
        rest.remove(step)
        done.append(step)
        names.add(step.name)
    return done
