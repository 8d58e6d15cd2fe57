"""Clients of Confluent Cloud's REST API. A plane is one address with one key; each kind of object has a class."""

URL = "https://api.confluent.cloud"
