"""The embedded stack: real servers on this machine in place of the clouds. One module a server."""
