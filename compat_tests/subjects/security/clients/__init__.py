"""What each stock client makes of a protected listener, all with the same face (`client`)."""
