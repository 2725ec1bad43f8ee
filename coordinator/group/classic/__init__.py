"""One classic group: `group.ClassicGroup` is the face of parts that share one `ClassicState`.

    state <- rebalance <- joining, syncing

`state` is what is known of the group, `rebalance` leads from one generation to the next, `joining` and `syncing` are
what JoinGroup and SyncGroup do in it. `members` and `states` are what the state is made of. A part holds the state and
the parts before it, and no reference to the face, so each can be made, and tested, without those after it.
"""
