"""Wire formats: requests and streams of the APIs that agents speak, turned into turn events without I/O."""
