"""Codecs as Python source, made from the schemas for each (API, version, direction) and compiled on first use."""
