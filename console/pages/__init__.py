"""The pages: routes, views, forms, and what a page's frame knows. Views parse and show; services decide."""
