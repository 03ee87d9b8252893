"""Live views: widgets and their pages."""
