"""The client that the REST catalogs of tests let in."""

CLIENT_ID, SECRET = "reader", "s3cret-of-the-client"
CREDENTIAL = f"{CLIENT_ID}:{SECRET}"
