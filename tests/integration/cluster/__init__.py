"""Tests that share a cluster of HBase, and harm it: one worker takes them all."""
