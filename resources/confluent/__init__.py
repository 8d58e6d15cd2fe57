"""Confluent Cloud's REST API: a plane is one address with one key; each kind of thing on a plane has a class here."""

URL = "https://api.confluent.cloud"
