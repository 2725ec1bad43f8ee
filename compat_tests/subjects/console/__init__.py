"""`barnabas console` as a person meets it: its page of documentation, and a tour in a browser (`tour.py`)."""
