"""Who may what, and how much: ACLs, SCRAM users, client quotas, as a cluster has them."""
