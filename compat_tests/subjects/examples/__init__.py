"""Every program in `examples/`, run as its reader would run it, and its results checked by other means."""
