"""Authentication: log-ins, users and tokens. Authorization: ACLs; and quotas."""
