"""`python -m tests.support.clouds.snowflake.strict_server`: the local Snowflake server with Snowflake's grammar and
access control, which the embedded stack does not need (lakehouse/local/snowflake/server.py)."""

from lakehouse.local.snowflake.server import main
from tests.support.clouds.snowflake.strict_account import StrictAccount
from tests.support.clouds.snowflake.strict_statements import StrictParser

if __name__ == "__main__":
    main(StrictAccount, StrictParser())
