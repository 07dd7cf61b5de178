//! Wrong usage, and what is said of it.
