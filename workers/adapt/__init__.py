"""The bridge: topics of other systems in, native rows out."""
