"""The report as one HTML page: figures made here as SVG, no script or font from elsewhere."""
