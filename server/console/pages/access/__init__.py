"""Who may what: ACLs, SCRAM users, quotas; each is deleted by a page that shows first what goes with it."""
