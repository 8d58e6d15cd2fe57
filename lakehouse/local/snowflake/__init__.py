"""A server that speaks Snowflake's protocol, for the embedded stack: fakesnow with the account objects it lacks.

`errors` and `tokens`, `options`, `statements` read a statement; `account` holds what a Snowflake account holds;
`commands`, `storage`, `tables` run a statement against it; `iceberg` reads the files; `engine` joins all that to
fakesnow; `login` and `server` are the protocol. docs/snowflake.md says where it differs from Snowflake.
"""
