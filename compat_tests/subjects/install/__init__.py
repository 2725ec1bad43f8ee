"""What a user installs, beside what the user has: wheel, source distribution, editable, from Git."""
