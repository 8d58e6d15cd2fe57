"""The servers that replace the cloud services, one module each."""
