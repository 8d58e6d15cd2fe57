"""What maintainers run and a deployment does not install: locks, audit, licences. See CONTRIBUTING.md."""
