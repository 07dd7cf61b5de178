//! Hostile and unlucky clients of `serve`.
