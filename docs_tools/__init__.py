"""What builds the documentation site, beside mkdocs; not part of the package."""
