"""The cloud set-up as assets: a graph of what stands on what. Materializing one makes or mends it, as `create` does."""

import re

import dagster as dg

from assets.failures import RETRY, explained
from lakehouse.config.loader import Config
from lakehouse.deploy import planner
from lakehouse.deploy.credentials import Access
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.step import Step
from lakehouse.deploy.steps import deployment_steps
from resources.build import opener

JOB = "deployment"
KINDS = {"aws": "aws", "confluent": "confluent", "snowflake": "snowflake"}


def deployment_definitions(config: Config, environment: str) -> dg.Definitions:
    """The steps of the environment's deployment, where it has one."""
    if environment not in config.deployments:
        return dg.Definitions()
    access = Access.from_environment(config.deployment(environment), opener(config, environment, "rest_catalog"))
    steps = deployment_steps(config, access)
    assets = [_asset(steps, step, access) for step in steps]
    job = dg.define_asset_job(JOB, dg.AssetSelection.assets(*assets), description="Set up the clouds, or mend them.")
    rotation = dg.ScheduleDefinition(
        job=_rotation(steps, access),
        cron_schedule="17 4 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks every night for keys that are old enough, and retires those that were replaced.",
    )
    return dg.Definitions(assets=assets, jobs=[job], schedules=[rotation])


def _rotation(steps: list[Step], access: Access) -> dg.JobDefinition:
    @dg.op(pool="deployment", retry_policy=RETRY)
    def replace_old_keys(context: dg.OpExecutionContext) -> None:
        with explained():
            access.check_account()
            for said in rotate(steps, Policy()):
                context.log.info(said)

    @dg.job(name="rotate_keys", description="Replace keys of Confluent and Snowflake that are old enough.")
    def job() -> None:
        replace_old_keys()

    return job


def key_of(name: str) -> dg.AssetKey:
    """The asset of a step."""
    system, _, rest = re.sub("[-.]", "_", name).partition("/")
    # The UI shows the last part: it has to say enough by itself.
    return dg.AssetKey(["deployment", system, rest.replace("/", "_")])


def _asset(steps: list[Step], step: Step, access: Access) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        key=key_of(step.name),
        deps=[key_of(needed) for needed in step.needs],
        description=step.what,
        group_name="deployment",
        kinds={KINDS[step.name.partition("/")[0]]},
    )

    @dg.multi_asset(name=spec.key.to_python_identifier(), specs=[spec], pool="deployment")
    def ensure(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        done: list[planner.Action] = []
        with explained():
            access.check_account()
            planner.ensure(steps, step.name, done.append)
        last = done[-1]
        context.log.info(f"{step.what}: {last.verb}, {last.why}")
        return dg.MaterializeResult(metadata={"done": last.verb, "why": last.why, "seconds": last.seconds or 0.0})

    return ensure
