"""The embedded stack: servers on this machine that replace the cloud services, with one module per server."""
