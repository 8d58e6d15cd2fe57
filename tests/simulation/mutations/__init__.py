"""Patches that reintroduce defects of interleaving and recovery, which the simulation must find."""
