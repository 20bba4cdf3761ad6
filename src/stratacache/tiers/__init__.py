"""The cache tiers: exact answers; later semantic (answers), prompt and kv (cheapen)."""
