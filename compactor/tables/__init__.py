"""Whose is a table, how does it become ours, and at which level does it detect conflicts?"""
