"""A server for Snowflake's protocol in the embedded stack: fakesnow, extended by the account objects that it lacks.

`server` and `login` implement the protocol; `engine` integrates the rest into fakesnow. `statements` parses what
fakesnow lacks; `commands` and `iceberg_commands` run it on the objects of `account`; `iceberg` reads the files. The
server is lenient: tests/support/clouds/snowflake extends it by Snowflake's access control and checks of options.
docs/snowflake.md lists the differences from Snowflake.
"""

ADMIN_USER = "ADMIN"
"""The only user who logs in with a password. Its role is ACCOUNTADMIN."""
