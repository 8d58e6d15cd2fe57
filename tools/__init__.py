"""Tools for maintainers, which a deployment does not install: locks, audit, licences. See CONTRIBUTING.md."""
