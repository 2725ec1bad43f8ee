"""Topics and partitions: what there is, creating and deleting it, who leads it and where its replicas are."""
