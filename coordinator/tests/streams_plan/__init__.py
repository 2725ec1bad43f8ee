"""The pure part of streams groups: topologies, tasks, the assignor, a member's steps."""
