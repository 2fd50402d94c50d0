"""What an operator looks at and mends in a queue by hand."""
