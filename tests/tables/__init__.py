"""Tests that need the libraries of models of tables, and no server."""
