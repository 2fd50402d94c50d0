"""compactor"""
