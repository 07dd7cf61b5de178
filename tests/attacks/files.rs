//! Paths that are not plain files, files that cannot be written, arguments that are not text.
