"""The pages of services and their server."""
