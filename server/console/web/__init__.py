"""Between a page and HTTP: who visits, what was sent, what is sent back. Without Starlette, so without a server."""
