"""What is wrong with a store, and what may be mended of it?"""
