"""Reports of rotations that end in an error: what they have changed, and what not."""

from __future__ import annotations

from copy import deepcopy

import pytest

from lakehouse.core.errors import UnclearState, Unreachable
from lakehouse.deploy.resource import Outputs
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.snowflake.access import ServiceUserKey
from tests.simulation.choices import Choices
from tests.simulation.deployment.clouds import OURS, CloudWorld, simulated_clouds
from tests.simulation.deployment.oracle import Oracle
from tests.simulation.deployment.schedule import established, narrow


def test_login_without_answer_reports_slots_and_secret_as_they_are():
    class UnansweredWorld(CloudWorld):
        def call(self, operation, effect, error):
            if operation == "snowflake login":
                raise error("no route")
            return super().call(operation, effect, error)

    world, clouds = UnansweredWorld(Choices(None)), deepcopy(established(True))
    user, name = clouds.names().snowflake("USER"), clouds.names().snowflake_secret
    with simulated_clouds(world, clouds):
        oracle = Oracle(world, clouds, grace_days=1)
        key, before = oracle.credential(name), dict(clouds.snowflake.slots[user])
        world.advance(31 * 86_400)
        [resource] = [one for one in clouds.resources(world) if isinstance(one, ServiceUserKey)]
        with pytest.raises(Unreachable) as unanswered:
            list(rotate([resource], Policy(), known=Outputs()))
        assert oracle.credential(name) == key and oracle.works(key)
    slots = clouds.snowflake.slots[user]
    assert len(slots) == 2 and slots["RSA_PUBLIC_KEY"] == before["RSA_PUBLIC_KEY"]
    assert unanswered.value.effect == (
        f"The new key is in RSA_PUBLIC_KEY_2 of user {user} and not in use; the key that the secret '{name}' names and "
        f"its slot were left unchanged"
    )
    assert "run `lakehouse deploy rotate`, which finishes the rotation" in unanswered.value.remedy


def test_rotate_second_key_fails_after_first_is_reported():
    world, clouds = CloudWorld(Choices(None)), deepcopy(established(True))
    lines: list[str] = []
    with simulated_clouds(world, clouds):
        names = [name for name in clouds.secrets[OURS].secrets if name.endswith("python_client")]
        world.advance(31 * 86_400)
        clouds.secrets[OURS].put(names[1], '{"note": "mine"}', ("AWSPENDING",), world.true_now)
        with pytest.raises(UnclearState, match=f"'{names[1]}' has no field .* The secret was left as it is"):
            for line in rotate(narrow(clouds.resources(world)), Policy()):
                lines.append(line)
    assert len(lines) == 1 and "a new key" in lines[0]
