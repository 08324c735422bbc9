"""What others are told of the books: spans and metrics by OpenTelemetry, a page for Prometheus. From the rows alone."""
