"""The ledger of a table, and its reconciliation with the topic."""
