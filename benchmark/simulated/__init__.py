"""Simulations: how often a bound holds that is stated with certainty."""
