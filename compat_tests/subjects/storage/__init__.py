"""What becomes of stored records, seen by stock clients: compaction."""
