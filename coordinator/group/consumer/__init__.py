"""Consumer groups of the next generation (KIP-848): the coordinator decides who has which partitions, and members get
there step by step.

    group.py            what is asked of one group: heartbeats, leaving, timers, its description
    membership.py       which group a request means, and what makes a group
    member_step.py      one heartbeat of a member, and what it changes
    reconcile.py        how a member gets from the partitions that it has to those that it is to have
    assignors.py        who is to have which: `uniform` and `range`
    state.py            one group as the log has it, and what is counted
    stored.py           its records in `__consumer_offsets`
    classic_members.py  members that speak the classic protocol
    upgrade.py, downgrade.py  a classic group becomes one of these, and back
"""
