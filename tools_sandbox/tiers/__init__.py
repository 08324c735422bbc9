"""The places where tools run ahead, from a thread to another machine."""
