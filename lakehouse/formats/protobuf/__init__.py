"""Format `protobuf`."""
