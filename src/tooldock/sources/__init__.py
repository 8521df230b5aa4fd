"""Where each kind of tool comes from, and how one is run."""
