"""Changes what tools exist: from folders on disk to the catalogue the engine serves."""
