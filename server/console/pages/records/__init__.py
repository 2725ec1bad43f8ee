"""Records of a topic: searched, followed, looked at, written."""
