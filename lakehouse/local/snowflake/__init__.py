"""A server for Snowflake's protocol in the embedded stack: fakesnow, extended by the account objects that it lacks.

`errors`, `tokens`, `options` and `statements` parse a statement; `account` has the objects of a Snowflake account;
`commands`, `storage` and `tables` run a statement on it; `iceberg` reads the files; `engine` integrates all of that
into fakesnow; `login` and `server` implement the protocol. docs/snowflake.md lists the differences from Snowflake.
"""

ADMIN_USER = "ADMIN"
"""The only user who logs in with a password. Its role is ACCOUNTADMIN."""
