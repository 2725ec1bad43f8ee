"""What the kinds of groups with epochs have in common: consumer groups of the next generation (KIP-848), share groups
(KIP-932), streams groups (KIP-1071).

    records.py      what their records say, and the frame of these
    state.py        epochs, members and targets of one group as the log has it, and its timers
    committing.py   a group whose members commit offsets: all but share groups

Three epochs: the *group's* rises with each change of members, subscriptions or topics; the *target's* is the group
epoch that the assignor has worked for; a *member's* is the target it has got to. How a member gets there, and what it
says of itself, is each kind's own.
"""
