"""One page, one file: `show` is what GET gives, `change` what POST does. `server/console/routes.py` lists them."""
