"""Records and their offsets: Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch."""
