"""Before training: would XNNPACK take its sparse path for what this network and this plan end in? No converter is run."""
