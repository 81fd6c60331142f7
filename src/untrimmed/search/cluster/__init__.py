"""Search and indexing on several machines: `sharded` combines shards, `ray_cluster` runs them with Ray."""
