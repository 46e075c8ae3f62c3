"""Life: how a job fares over days, as failures interrupt it, each second of it with one label."""
