"""Pure decisions: what topics may be created and how, where replicas go, who is elected. May import `values`."""
