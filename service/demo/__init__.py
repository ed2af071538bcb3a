"""The demonstration: real rows in real time order, and a live table of what moves the outputs."""
