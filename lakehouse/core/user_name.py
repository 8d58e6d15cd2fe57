"""The name of the user whom decisions are attributed to."""

import os
from getpass import getuser


def user_name() -> str:
    """Return the user's name, or the number of one without a name, as in containers with an arbitrary user id."""
    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())
