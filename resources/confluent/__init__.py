"""Clients of Confluent Cloud's REST API. One class for each kind of object."""

URL = "https://api.confluent.cloud"
